"""Time-outs of tasks and processes, found by the scanners in the records that real steps left behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY
from pymongo.errors import AutoReconnect

from recovery import ProcessBroken, heartbeat
from recovery.engine.operators.redo import redo_process
from recovery.errors import ClaimLost
from recovery.records import DecisionState, Interruption, ProcessState
from recovery.repair import process_repairs
from recovery.rules import Rule
from recovery.store.lifecycle import preferences
from tests.scan.making import DAY, after_find, overdue, scanner
from tests.waiting import wait_until
from tests.world import World

QUEUED, WORKING = DecisionState.QUEUED, DecisionState.WORKING
TASK = {Rule.TASK_TIMEOUT: 1}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is stored is known without a wait."""
    monkeypatch.setattr(preferences, "REFRESH", 0.0)
    monkeypatch.setattr(preferences, "REFRESH", 0.0)
    yield


def start(world: World, function: Any = lambda: "done", **settings: Any) -> str:
    process = world.app.process("add", **settings)(function)
    world.tell()
    return world.start(process)


def found(world: World, name: str, expected: dict[Rule, int]) -> None:
    wait_until(lambda: scanner(world, name).run_once().repaired == expected, 10, f"{expected} by {name}")
    assert scanner(world, name).run_once().repaired == {}, "once"


def time_goes_on(world: World, seconds: float) -> None:
    """For all tasks that have begun to wait, or are worked on."""
    since = {field: {"$subtract": [f"${field}", seconds * 1000]} for field in ("enqueuedAt", "recoveryTime")}
    world.store.database["decisions"].update_many({"enqueuedAt": {"$exists": True}}, [{"$set": since}])


def broken(world: World, process_id: str) -> tuple[str, str]:
    with pytest.raises(ProcessBroken) as caught:
        world.app.result(process_id, timeout=0)
    return caught.value.kind, caught.value.message


def test_a_task_that_waits_for_too_long(world: World) -> None:
    process_id = start(world, task_timeout=0.05)
    found(world, "decisions", TASK)
    assert broken(world, process_id) == ("TaskTimeout", "add was not done within its task_timeout of 0.05 s")
    assert world.pump() == 1, "its message is stale"
    decision = world.decisions(process_id)["start"]
    assert (decision.attempts, decision.timeouts, decision.recovery_time) == (0, 0, None)


def test_a_task_that_is_worked_on_for_too_long(world: World) -> None:
    """Forced: ended while it runs, and its attempt learns of it."""
    told: list[str] = []

    def hangs() -> None:
        time_goes_on(world, 61)
        found(world, "decisions", TASK)
        try:
            heartbeat()
        except ClaimLost:
            told.append("lost")
            raise

    process_id = start(world, hangs, task_timeout=60, force_finish_after_task_timeout=True)
    world.pump()
    assert told == ["lost"]
    assert broken(world, process_id)[0] == "TaskTimeout"


def test_a_task_whose_attempt_may_end(world: World) -> None:
    """Not forced: its value is taken if it comes, however late."""

    def late() -> str:
        time_goes_on(world, 61)
        assert scanner(world, "decisions").run_once().repaired == {}
        return "late"

    process_id = start(world, late, task_timeout=60, worker_timeout=3600)
    world.pump()
    assert world.app.result(process_id, timeout=0) == "late"


def test_an_attempt_that_is_lost_is_the_last(world: World) -> None:
    """Not forced, and overdue: an error instead of another attempt."""
    world.app.process("add", task_timeout=5)(lambda: "added")
    (decision,) = overdue(world, WORKING, enqueued_at=world.store.now().replace(year=2020))
    assert scanner(world, "decisions").run_once().repaired == TASK
    assert broken(world, decision.process_id)[0] == "TaskTimeout"


@pytest.mark.parametrize("forced", [False, True])
def test_a_result_between_look_and_write_wins(world: World, forced: bool) -> None:
    world.app.process("add", task_timeout=5, force_finish_after_task_timeout=forced)(lambda: "added")
    (decision,) = overdue(world, WORKING, enqueued_at=world.store.now().replace(year=2020))
    one = scanner(world, "decisions")

    def give() -> None:
        world.store.requeues.requeue_unrun({decision.id: "old"}, "w#1", "new")
        world.store.database["decisions"].update_one({"_id": decision.id}, {"$set": {"state": "finished"}})

    after_find(one, give)
    assert one.run_once().repaired == {}
    assert world.process(decision.process_id).state is ProcessState.RUNNING


def count(process_type: str) -> float:
    return REGISTRY.get_sample_value("recovery_process_timeouts_total", {"type": process_type}) or 0.0


def test_a_process_that_takes_too_long_is_counted(world: World) -> None:
    before = count("add")
    process_id = start(world, process_timeout=0.05, idle_timeout=60)
    found(world, "processes", {Rule.PROCESS_TIMEOUT: 1})
    assert count("add") == before + 1
    assert world.bring_to_end(process_id).result == '"done"', "it goes on"


def test_a_process_that_takes_too_long_is_broken(world: World) -> None:
    before = count("add")
    process_id = start(world, process_timeout=0.05, break_after_process_timeout=True, idle_timeout=60)
    found(world, "processes", {Rule.PROCESS_TIMEOUT: 1})
    assert count("add") == before + 1
    assert broken(world, process_id) == (
        "ProcessTimeout", "the process was not done within its process_timeout of 0.05 s"
    )  # fmt: skip


def test_a_process_that_is_not_registered_is_not_broken_before_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken without a graph it would be at rest, and nobody would ever finish its start."""
    process_id = start(world, process_timeout=0.05, break_after_process_timeout=True, idle_timeout=60)
    for name in ("graphs", "decisions", "tasks"):
        world.store.database[name].delete_many({})
    past = world.store.now() - DAY
    a_day_ago = {"$set": {"startedAt": past, "recoveryTime": past}}
    world.store.database["processes"].update_one({}, a_day_ago)

    def cut_off(*_: object) -> int:
        raise AutoReconnect("the primary is gone")

    with monkeypatch.context() as cut:
        cut.setattr(process_repairs, "register", cut_off)
        assert scanner(world, "processes").run_once().looked_at == 1
    assert world.process(process_id).state is ProcessState.RUNNING
    assert world.process(process_id).recovery_time is not None
    world.store.database["processes"].update_one({}, a_day_ago)
    found(world, "processes", {Rule.START_NOT_REGISTERED: 1, Rule.PROCESS_TIMEOUT: 1})
    assert world.process(process_id).state is ProcessState.BROKEN
    assert world.store.graphs.get(process_id) is not None


def test_a_blocked_task_waits_without_being_queued_again(world: World) -> None:
    process_id = start(world)
    world.redis.flushdb()
    world.store.actors.block("add")
    before = world.decisions(process_id)["start"]

    def looked_at() -> bool:
        world.store.queues.polled({"add": world.store.now()})
        assert scanner(world, "decisions").run_once().repaired == {}
        now = world.decisions(process_id)["start"]
        return now.recovery_time != before.recovery_time

    wait_until(looked_at, 10, "its deadline to move")
    assert world.decisions(process_id)["start"].pass_key == before.pass_key
    world.store.actors.unblock("add")
    assert world.bring_to_end(process_id).result == '"done"'


@pytest.mark.parametrize("end", [ProcessState.FINISHED, ProcessState.ABORTED])
def test_a_process_that_ends_as_it_is_about_to_be_broken_is_not_listed(
    world: World, monkeypatch: pytest.MonkeyPatch, end: ProcessState
) -> None:
    process_id = start(world, process_timeout=0.05, break_after_process_timeout=True, idle_timeout=60)
    add = world.store.interruptions.add

    def just_then(interruption: Interruption) -> None:
        if end is ProcessState.FINISHED:
            world.pump()
        else:
            world.app.abort(process_id, "not wanted")
        add(interruption)

    monkeypatch.setattr(world.store.interruptions, "add", just_then)
    wait_until(lambda: scanner(world, "processes").run_once().looked_at, 10, "its time to be over")
    assert world.process(process_id).state is end
    assert world.store.interruptions.of_process(process_id) == []


@pytest.mark.parametrize("how", ["restarted", "done again"])
def test_one_that_runs_again_since_it_was_judged_is_not_listed(
    world: World, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Another scanner has broken it for its time, and an operator has restarted it: its time is over only once; or has
    it done again: its time begins again."""
    process_id = start(world, process_timeout=0.05, break_after_process_timeout=True, idle_timeout=60)
    late, other = scanner(world, "processes"), scanner(world, "processes")
    judge = late.judge

    def meanwhile(page: Any) -> Any:
        diagnosis = judge(page)
        assert other.run_once().repaired[Rule.PROCESS_TIMEOUT] == 1
        if how == "restarted":
            world.app.restart(process_id)
        else:
            redo_process(world.app.resources, process_id, "its data was wrong")
        assert world.process(process_id).state is ProcessState.RUNNING
        monkeypatch.setattr(world.store.interruptions, "add", lambda _: 1 // 0)
        return diagnosis

    late.judge = meanwhile  # type: ignore[method-assign]
    wait_until(lambda: late.run_once().looked_at, 10, "its time to be over")
    assert world.process(process_id).state is ProcessState.RUNNING
    assert world.store.interruptions.of_process(process_id) == []


def test_one_whose_time_is_only_counted_as_it_is_about_to_be_broken_is_not_listed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a scanner that had read the settings before somebody changed them."""
    process_id = start(world, process_timeout=0.05, break_after_process_timeout=True, idle_timeout=60)
    add = world.store.interruptions.add

    def just_then(interruption: Interruption) -> None:
        add(interruption)
        assert world.store.processes.note_timeouts([process_id], "add", 0.05) == 1

    monkeypatch.setattr(world.store.interruptions, "add", just_then)
    wait_until(lambda: scanner(world, "processes").run_once().looked_at, 10, "its time to be over")
    assert world.process(process_id).state is ProcessState.RUNNING
    assert world.store.interruptions.of_process(process_id) == []
    assert world.bring_to_end(process_id).result == '"done"'


def test_one_that_fails_as_it_is_taken_off_the_list_is_listed_for_that(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ValueError

    process_id = start(world, fail, process_timeout=0.05, break_after_process_timeout=True, idle_timeout=60)
    interruptions, processes = world.store.interruptions, world.store.processes
    add, remove_kind = interruptions.add, interruptions.remove_kind

    def counted_just_then(interruption: Interruption) -> bool:
        monkeypatch.setattr(interruptions, "add", add)
        added = add(interruption)
        assert processes.note_timeouts([process_id], "add", 0.05) == 1
        return added

    def fails_just_then(listed: Iterable[tuple[str, int]], kind: str) -> None:
        if some := list(listed):
            world.pump()
            assert world.process(process_id).state is ProcessState.BROKEN
        remove_kind(some, kind)

    monkeypatch.setattr(interruptions, "add", counted_just_then)
    monkeypatch.setattr(interruptions, "remove_kind", fails_just_then)
    wait_until(lambda: scanner(world, "processes").run_once().looked_at, 10, "its time to be over")
    assert [one.kind for one in interruptions.of_process(process_id)] == ["ValueError"]


def test_what_is_put_off_or_restarted_is_looked_at_when_its_time_is_over(world: World) -> None:
    def fail() -> None:
        raise ValueError

    process_id = start(world, fail, task_timeout=5)
    world.pump()
    assert world.app.restart(process_id)
    decision = world.decisions(process_id)["start"]
    assert decision.enqueued_at is not None
    over = decision.enqueued_at + timedelta(seconds=5)
    assert decision.recovery_time is not None and decision.recovery_time <= over
    past = world.store.now() - timedelta(seconds=1)
    world.store.database["decisions"].update_one({"_id": decision.id}, {"$set": {"recoveryTime": past}})
    assert world.store.task_deadlines.postpone([decision.id], 600, 700) == 1
    assert world.decisions(process_id)["start"].recovery_time == over
