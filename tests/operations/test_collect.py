"""Collection: what is over goes with all of its records, written to an export before, and comes back from that; nothing
that anybody would still look at goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recovery import operations
from recovery.engine.lifecycle.removal import remove
from recovery.engine.operations.redo import preview_redo, redo_process
from recovery.errors import InputError, ProcessNotFound
from recovery.health import look
from recovery.operations import Asked
from recovery.operations.export import append
from recovery.operations.kinds import kind_of
from recovery.records import Life, ProcessState, ResultState
from recovery.records.schedule import Schedule
from recovery.rules import Rule
from recovery.settings import Settings
from recovery.store import schema
from tests.operations.ordering import Ordering, adds_up
from tests.store.writing import contents
from tests.waiting import wait_until

RECORDS = schema.OF_PROCESSES


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied)


def long_ago(world: Ordering) -> None:
    """All that has ended has done so two hours ago."""
    ended = {"endedAt": {"$exists": True}}
    world.store.database["processes"].update_many(
        ended, [{"$set": {"endedAt": {"$subtract": ["$endedAt", 7_200_000]}}}]
    )


def at_rest(world: Ordering, *process_ids: str) -> None:
    def is_so() -> bool:
        world.pump()
        world.scan()
        return not world.store.removals.live(process_ids)

    wait_until(is_so, 10, "all to be at rest")


def ended(world: Ordering, count: int) -> list[str]:
    found = [world.end_of(one) for one in world.orders(count)]
    at_rest(world, *found)
    long_ago(world)
    return found


def records(world: Ordering) -> dict[str, dict[str, Any]]:
    return {name: contents(world.store, name) for name in RECORDS}


def test_what_is_over_goes_and_nothing_else(world: Ordering) -> None:
    over = ended(world, 3)
    aborted = world.orders(1)
    world.app.abort(aborted[0], "not wanted")
    at_rest(world, *aborted)
    broken = world.refunds(1)
    long_ago(world)
    running, lately = world.orders(1), [world.end_of(one) for one in world.orders(1)]
    done = world.run_through("collect")
    assert world.results(done).keys() == {*over, *aborted}
    assert {one.state for one in world.results(done).values()} == {ResultState.DONE}
    adds_up(world, done)
    left = {*broken, *running, *lately}
    assert contents(world.store, "processes").keys() == left
    for name in ("decisions", "tasks"):
        assert {key.partition("/")[0] for key in contents(world.store, name)} == left
    assert contents(world.store, "graphs").keys() == left
    with pytest.raises(ProcessNotFound):
        world.app.result(over[0], timeout=0)


def revive(world: Ordering, collection: str, key: str) -> None:
    world.store.database[collection].update_one({"_id": key}, {"$set": {"recoveryTime": world.store.now()}})


MEDDLING: dict[str, Callable[[Ordering, str], object]] = {
    "its graph is live": lambda world, key: revive(world, "graphs", key),
    "a task is live": lambda world, key: revive(world, "decisions", f"{key}/start"),
    "it has changed": lambda world, key: world.store.database["processes"].update_one(
        {"_id": key}, {"$set": {"epoch": 7}}
    ),
}


@pytest.mark.parametrize("meddle", MEDDLING.values(), ids=MEDDLING)
def test_what_has_changed_since_the_plan_stays(world: Ordering, meddle: Callable[[Ordering, str], object]) -> None:
    first, second = ended(world, 2)
    planned = world.bring_on(world.ask("collect"))
    meddle(world, first)
    operations.apply(world.app.resources, planned.id)
    done = world.bring_on(planned)
    states = {key: one.state for key, one in world.results(done).items()}
    assert states == {first: ResultState.CHANGED, second: ResultState.DONE}
    assert world.process(first).removing is None
    adds_up(world, done)


def test_what_a_schedule_may_still_ask_for_stays(world: Ordering) -> None:
    first, second, third = ended(world, 3)
    schedule = Schedule(id="order", type="order", last_process=first, beside=(second,), recovery_time=world.store.now())
    assert world.store.schedules.insert(schedule)
    assert world.results(world.run_through("collect")).keys() == {third}


def test_an_export_is_written_first_and_read_back(world: Ordering, tmp_path: Path) -> None:
    over = [world.end_of(world.app.start("order", 4, custom_id=f"o{n}", labels={"n": str(n)})) for n in range(5)]
    at_rest(world, *over)
    long_ago(world)
    before = records(world)
    done = world.run_through("collect", "state:finished", export=str(tmp_path))
    assert done.applied is not None and done.applied.done == 5
    assert sum(world.counts().values()) == 0
    files = sorted(tmp_path.iterdir())
    assert files and all(file.suffix == ".jsonl" and f"operation-{done.id}-" in file.name for file in files)
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert {json.loads(line)["process"]["_id"] for line in lines} == set(over)
    taken = world.app.start("order", 9, custom_id="o0")
    assert [world.store.exports.insert(line) for line in lines] == [
        json.loads(line)["process"]["_id"] for line in lines
    ]
    assert [world.store.exports.insert(line) for line in lines] == [None] * 5, "once is enough"
    after = records(world)
    for name in RECORDS:
        for key, document in before[name].items():
            if name == "processes" and document["customId"] == "o0":
                assert after[name][key].pop("formerCustomId") == document.pop("customId")
            assert after[name][key] == document
    assert world.process(taken).custom_id == "o0"
    assert look(world.app.resources, over[0]).findings == ()
    assert world.app.result(over[0], timeout=0) == 6


def test_what_is_removed_in_part_is_not_written_over_what_was_whole(world: Ordering, tmp_path: Path) -> None:
    """Cut off in the midst of a removal, the rest of it goes; the export has the process as it was, once."""
    (over,) = ended(world, 1)
    planned = world.bring_on(world.ask("collect", "state:finished", export=str(tmp_path)))
    (planned_result,) = world.results(planned).values()
    kind = kind_of(planned.kind, world.app.resources, world.app.applier)
    world.store.operation_results.begin([planned_result])
    append(world.app.resources, planned.id, str(tmp_path), [over])
    world.store.removals.begin([(over, 0)], 60)
    world.store.database["decisions"].delete_many({})
    (done,) = kind.apply(planned, [planned_result.evolve(begun=True)])
    assert done.state is ResultState.DONE
    (file,) = tmp_path.iterdir()
    assert len(json.loads(file.read_text())["decisions"]) == 3
    assert file.stat().st_mode & 0o077 == 0, "it holds arguments and results"


def test_what_can_not_be_written_is_not_removed(world: Ordering, tmp_path: Path) -> None:
    over = ended(world, 2)
    done = world.run_through("collect", "state:finished", export=str(tmp_path / "nowhere"))
    results = world.results(done)
    assert {one.state for one in results.values()} == {ResultState.ERROR}
    assert all("can't be written: No such file" in (one.error or "") for one in results.values())
    assert contents(world.store, "processes").keys() == set(over)


@pytest.mark.parametrize("collection", ["decisions", "tasks", "graphs", "processes"])
def test_cut_off_it_is_found_and_finished(world: Ordering, collection: str) -> None:
    """As far as this collection's records, which stay."""
    (over,) = ended(world, 1)
    order = ["decisions", "tasks", "interruptions", "graphs", "processes"]
    world.store.removals.begin([(over, 0)], 0.3)
    for name in order[: order.index(collection)]:
        world.store.database[name].delete_many({"_id": {"$regex": f"^{over}"}})
    (finding,) = look(world.app.resources, over).findings
    assert finding.rule is Rule.REMOVAL_CUT_OFF
    with pytest.raises(InputError, match="is being removed"):
        preview_redo(world.app.resources, over)

    def gone() -> bool:
        world.scan()
        return sum(world.counts().values()) == 0

    wait_until(gone, 10, "the rest of the removal")


def test_of_a_restart_and_a_removal_one_is_first(world: Ordering) -> None:
    first, second = ended(world, 2)
    seen = {key: world.process(key) for key in (first, second)}
    redo_process(world.app.resources, first, "wrong data")
    assert remove(world.app.resources, [*seen.values()]) == {second}
    assert world.bring_to_end(first).state is ProcessState.FINISHED


def test_what_is_broken_is_not_removed_whoever_asks(world: Ordering) -> None:
    (key,) = world.refunds(1)
    seen = world.process(key)
    assert (seen.state, seen.recovery_time) == (ProcessState.BROKEN, None)
    assert world.store.removals.begin([(key, 0)], 60) == []
    assert world.process(key) == seen


def test_the_first_write_is_of_what_was_seen_and_frees_the_custom_id(world: Ordering) -> None:
    key = world.end_of(world.app.start("order", 4, custom_id="o1"))
    at_rest(world, key)
    seen = world.process(key)
    assert world.store.removals.begin([(key, seen.epoch + 1)], 60) == []
    assert world.process(key) == seen
    assert world.store.removals.begin([(key, seen.epoch)], 60) == [key]
    now = world.process(key)
    assert (now.removing, now.custom_id, now.former_custom_id) == (True, None, "o1")
    life = Life(epoch=0, state=seen.state, by="me", reason="late", ended_at=world.store.now())
    assert not world.store.redos.begin(now, life, ["start"], 60), "it was seen before it was to be removed"
    assert world.app.start("order", 4, custom_id="o1") != key


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "it is no JSON"),
        ("[]", "it is no process"),
        ('{"process": {"_id": 5}, "tasks": [], "decisions": []}', "it is no process"),
        ('{"process": {"_id": "p"}, "tasks": [{"_id": "q/start"}], "decisions": []}', "of another process than p"),
        ('{"process": {"_id": "p"}, "graph": {"_id": "q"}, "tasks": [], "decisions": []}', "of another process than p"),
    ],
)
def test_what_is_no_export(world: Ordering, line: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        world.store.exports.insert(line)
    assert sum(world.counts().values()) == 0


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Asked("abort", "type:order", export="/tmp"), "is for collect; abort removes nothing"),
        (Asked("collect", "type:order", export="exports"), "give the whole path of a folder"),
    ],
)
def test_an_export_that_can_not_be(world: Ordering, asked: Asked, told: str) -> None:
    world.orders(1)
    with pytest.raises(InputError, match=told):
        asked.checked(world.app.resources)
