"""A process that is done again, cut off after each of its writes, and before: it ends right, or was never begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recovery import Settings
from recovery.engine.operators.redo import redo_process
from recovery.records import Graph, Life, Process, ProcessState
from recovery.records.ids import new_pass
from tests.protocol.harness import RESULT, World
from tests.seldom import by_turns
from tests.store.writing import contents
from tests.waiting import wait_until
from tests.world import check_quiet

pytestmark = pytest.mark.thorough

STEPS = [
    *("Redos.epochs", "Redos.pending", "Redos.links", "Redos.put_back", "Redos.drop", "Redos.forget"),
    *("Redos.release", "Redos.move", "Interruptions.remove_past", "Redos.set_graph", "Redos.end"),
    *("Requeues.enqueue_ready", "Broker.push"),
]
ACTORS = ["squares", "pyramid"]


@pytest.fixture
def world(emptied: Settings) -> World:
    return World(emptied)


@pytest.mark.parametrize(
    ("step", "when", "actor"),
    [*(("Redos.begin", "after", actor) for actor in ACTORS), *by_turns(STEPS, ["before", "after"], ACTORS)],
)
def test_cut_off(world: World, step: str, when: str, actor: str) -> None:
    at = f"{step}:{when}"
    process_id = world.start("pyramid", [1, 2, 3])
    world.bring_to_end(process_id)
    (task,) = (key for key, one in world.decisions(process_id).items() if one.actor == actor)
    # Of the first links the preview is made.
    skipped = 1 if "links" in at else 0
    world.dies(at, lambda doomed: redo_process(doomed.app.resources, process_id, "why", [task]), skipped=skipped)
    process = world.bring_to_end(process_id)
    assert (process.state, process.epoch, len(process.lives)) == (ProcessState.FINISHED, 1, 1)
    assert world.app.result(process_id, timeout=0) == RESULT
    check_quiet(world, process_id)


@pytest.mark.parametrize("step", ["begin", "drop", "forget", "move", "set_graph"])
@pytest.mark.parametrize("lost", [{"$unset": {"redo": ""}}, {"$set": {"redo": []}}], ids=["absent", "empty"])
def test_cut_off_and_what_is_done_again_is_no_longer_named(world: World, step: str, lost: dict[str, Any]) -> None:
    """Another program took the names off. The order has them too: what was dropped already is no lost record."""
    process_id = world.start("pyramid", [1, 2, 3])
    world.bring_to_end(process_id)
    world.dies(f"Redos.{step}:after", lambda doomed: redo_process(doomed.app.resources, process_id, "why"))
    update = {"q": {"_id": process_id}, "u": lost}
    world.store.database.command("update", "processes", updates=[update], bypassDocumentValidation=True)
    process = world.bring_to_end(process_id)
    assert (process.state, process.epoch, process.order) == (ProcessState.FINISHED, 1, None)
    assert world.app.result(process_id, timeout=0) == RESULT
    check_quiet(world, process_id)
    assert not world.store.database["orders"].count_documents({})


def test_cut_off_before_its_commit_point(world: World) -> None:
    process_id = world.start("pyramid", [1, 2, 3])
    before = world.bring_to_end(process_id)
    world.dies("Redos.begin:before", lambda doomed: redo_process(doomed.app.resources, process_id, "why"))
    assert world.process(process_id) == before
    (entry,) = world.store.audit_log.newest(1)
    assert (entry.what, entry.outcome) == ("process restart", None), "somebody began, and was cut off"


def test_two_at_once_and_a_scanner(world: World) -> None:
    """Of two who begin it at once one does; both carry it out, as does who comes by."""
    process_id = world.start("pyramid", [1, 2, 3])
    world.bring_to_end(process_id)
    world.dies("Redos.move:before", lambda doomed: redo_process(doomed.app.resources, process_id, "why"))
    world.dies("Redos.set_graph:before", lambda doomed: wait_until(lambda: doomed.scan() or False, 10, "its deadline"))
    assert world.bring_to_end(process_id).epoch == 1
    assert world.app.result(process_id, timeout=0) == RESULT
    check_quiet(world, process_id)


def of_epoch_2(world: World, at: str | None) -> str:
    """A process that is done again for the second time, or is about to be: cut off there."""
    process_id = world.start("pyramid", [1, 2, 3])
    world.bring_to_end(process_id)
    redo_process(world.app.resources, process_id, "why")
    world.bring_to_end(process_id)
    if at is None:
        redo_process(world.app.resources, process_id, "once more")
    else:
        world.dies(at, lambda doomed: redo_process(doomed.app.resources, process_id, "once more"))
    return process_id


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("at", ["Redos.begin:after", "Redos.put_back:after", "Redos.move:before", None])
def test_whoever_still_carries_out_the_one_before_changes_nothing(world: World, at: str | None, ended: bool) -> None:
    """Cut off in it and gone on, each step of epoch 1 finds that its time is over, whatever epoch 2 has come to."""
    process_id = of_epoch_2(world, at)
    if ended:
        world.bring_to_end(process_id)
        check_quiet(world, process_id)
    database, redos = world.store.database, world.store.redos
    there = [*world.decisions(process_id)]
    # What epoch 2 has not come to yet is what epoch 1 left, and stays so.
    left = {name: contents(world.store, name) for name in ("processes", "decisions", "tasks", "graphs")}
    of_now = [one["_id"].partition("/")[2] for one in left["decisions"].values() if one["epoch"] == 2]
    scheduled = [task for task in there if left["tasks"][f"{process_id}/{task}"]["epoch"] > 0]
    redos.move(process_id, 1)
    redos.forget(process_id, 1, scheduled)
    for one in world.decisions(process_id).values():
        redos.discard(1, one)
    redos.release(process_id, 1, of_now)
    redos.put_back(process_id, 1, there)
    assert redos.drop(process_id, 1, there) == 0
    assert not redos.set_graph(Graph(id=process_id, epoch=1))
    assert not redos.end(process_id, 1, "an order")
    assert {name: contents(world.store, name) for name in left} == left
    assert database["graphs"].count_documents({}) == 1
    assert world.bring_to_end(process_id).epoch == 2
    assert world.app.result(process_id, timeout=0) == RESULT


@pytest.mark.parametrize(
    "since",
    [
        pytest.param(lambda seen: seen.evolve(epoch=seen.epoch - 1), id="done again since"),
        pytest.param(lambda seen: seen.evolve(reopened=0), id="restarted since"),
        pytest.param(lambda seen: seen.evolve(state=ProcessState.BROKEN), id="ended otherwise since"),
    ],
)
def test_it_is_begun_of_what_was_seen_alone(world: World, since: Callable[[Process], Process]) -> None:
    process_id = of_epoch_2(world, None)
    seen = world.bring_to_end(process_id)
    life = Life(epoch=seen.epoch, state=seen.state, by="me", reason="late", ended_at=world.store.now())
    assert not world.store.redos.begin(since(seen), life, ["start"], new_pass(), 60)
    assert world.process(process_id) == seen
    assert world.store.redos.begin(seen, life, ["start"], new_pass(), 60)
