"""A process that is done again, cut off after each of its writes, and before: it ends right, or was never begun."""

from __future__ import annotations

import pytest

from recovery import Settings
from recovery.engine.operations.redo import redo_process
from recovery.records import ProcessState
from tests.protocol.harness import RESULT, World
from tests.waiting import wait_until
from tests.world import check_quiet

STEPS = [
    f"{step}:{when}"
    for step in (
        *("Redos.epochs", "Redos.pending", "Redos.links", "Redos.put_back", "Redos.drop", "Redos.forget"),
        *("Redos.release", "Redos.move", "Interruptions.remove_past", "Redos.set_graph", "Redos.end"),
        *("Requeues.enqueue_ready", "Broker.push"),
    )
    for when in ("before", "after")
]


@pytest.fixture
def world(emptied: Settings) -> World:
    return World(emptied)


@pytest.mark.parametrize("actor", ["squares", "pyramid"])
@pytest.mark.parametrize("at", ["Redos.begin:after", *STEPS])
def test_cut_off(world: World, at: str, actor: str) -> None:
    process_id = world.app.start("pyramid", [1, 2, 3])
    world.bring_to_end(process_id)
    (task,) = (key for key, one in world.decisions(process_id).items() if one.actor == actor)
    # Of the first links the preview is made.
    skipped = 1 if "links" in at else 0
    world.dies(at, lambda doomed: redo_process(doomed.app.resources, process_id, "why", [task]), skipped=skipped)
    process = world.bring_to_end(process_id)
    assert (process.state, process.epoch, len(process.lives)) == (ProcessState.FINISHED, 1, 1)
    assert world.app.result(process_id, timeout=0) == RESULT
    check_quiet(world, process_id)


def test_cut_off_before_its_commit_point(world: World) -> None:
    process_id = world.app.start("pyramid", [1, 2, 3])
    before = world.bring_to_end(process_id)
    world.dies("Redos.begin:before", lambda doomed: redo_process(doomed.app.resources, process_id, "why"))
    assert world.process(process_id) == before
    (entry,) = world.store.audit_log.newest(1)
    assert (entry.what, entry.outcome) == ("process restart", None), "somebody began, and was cut off"


def test_two_at_once_and_a_scanner(world: World) -> None:
    """Of two who begin it at once one does; both carry it out, as does who comes by."""
    process_id = world.app.start("pyramid", [1, 2, 3])
    world.bring_to_end(process_id)
    world.dies("Redos.move:before", lambda doomed: redo_process(doomed.app.resources, process_id, "why"))
    world.dies("Redos.set_graph:before", lambda doomed: wait_until(lambda: doomed.scan() or False, 10, "its deadline"))
    assert world.bring_to_end(process_id).epoch == 1
    assert world.app.result(process_id, timeout=0) == RESULT
    check_quiet(world, process_id)
