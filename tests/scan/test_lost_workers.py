"""The Worker scanner: what a silent worker had claimed goes on at once, and only then is the worker forgotten."""

from __future__ import annotations

import pytest

from recovery.records import DecisionState, Outcome, ProcessState, Worker
from recovery.repair import Repairer
from recovery.rules import Rule
from recovery.scan import WorkerScanner, rescue
from tests.scan.making import DAY, overdue, process_of, scanner, start_of
from tests.world import World

WORKING, FINISHED = DecisionState.WORKING, DecisionState.FINISHED


@pytest.fixture(autouse=True)
def add(world: World) -> None:
    world.app.process("add")(lambda: "added")


def worker(world: World, name: str, silent: bool) -> None:
    record = Worker(id=name, name=name, host="h", pid=1, pid_started=1)
    world.store.workers.beat(record, -1 if silent else 60)


def claimed(world: World, state: DecisionState = WORKING, count: int = 1, **changes: object) -> None:
    """Decisions that worker `w` claimed, whose own deadlines are a day away."""
    overdue(world, state, count, **{"worker": "w#7", "recovery_time": world.store.now() + DAY, **changes})


def states(world: World) -> list[str]:
    return sorted(d["state"] for d in world.store.database["decisions"].find())


def test_claims_of_a_silent_worker_are_requeued(world: World) -> None:
    claimed(world, count=5)
    worker(world, "w", silent=True)
    worker(world, "alive", silent=False)
    result = scanner(world, "workers").run_once()
    assert (result.scanner, result.looked_at, result.repaired) == ("workers", 1, {Rule.WORKER_LOST: 5})
    assert states(world) == ["queued"] * 5
    assert world.redis.llen("add") == 5
    assert [w.id for w in world.store.workers.all()] == ["alive"]
    counts = {(d.get("timeouts"), d.get("workersLost")) for d in world.store.database["decisions"].find()}
    assert counts == {(0, 1)}, "a worker that is gone as a whole says nothing about its tasks"


def test_claims_of_others_are_left_alone(world: World) -> None:
    claimed(world, worker="w2#7")
    worker(world, "w", silent=True)
    assert scanner(world, "workers").run_once().repaired == {}
    assert states(world) == ["working"]
    assert world.store.workers.all() == []


def test_what_it_finished_is_applied(world: World) -> None:
    claimed(world, FINISHED, outcome=Outcome(pass_key="old", value='"added"'))
    worker(world, "w", silent=True)
    assert scanner(world, "workers").run_once().repaired == {Rule.DECISION_NOT_APPLIED: 1}
    assert world.process(process_of(0)).result == '"added"'
    assert world.store.workers.all() == []


def test_more_claims_than_a_page(world: World) -> None:
    claimed(world, count=25)
    worker(world, "w", silent=True)
    resources = world.app.resources
    world.app._connected.clear()
    world.app._settings = resources.settings.model_copy(update={"scan_batch": 10})
    world.app.__dict__.pop("settings", None)
    assert scanner(world, "workers").run_once().error is None
    assert states(world) == ["queued"] * 25
    assert world.store.workers.all() == []


def test_who_may_not_judge_does_not(world: World) -> None:
    """Silence proves nothing while the database was away for all."""
    claimed(world)
    worker(world, "w", silent=True)
    one = WorkerScanner(world.app.resources, world.app.outbox, dict)
    assert one.run_once().looked_at == 0
    assert states(world) == ["working"]


def test_a_poison_task_ends_after_so_many_workers(world: World) -> None:
    claimed(world, workers_lost=29)
    worker(world, "w", silent=True)
    assert scanner(world, "workers").run_once().repaired == {Rule.WORKER_LOST: 1}
    process = world.process(process_of(0))
    assert process.state is ProcessState.BROKEN
    assert process.error is not None
    assert process.error.message == "add was lost with 30 workers (3 for each of max_work_timeouts)"


KILLED = "was ended by signal 9 (SIGKILL)"


@pytest.mark.parametrize(
    ("attempt", "restart", "told"),
    [
        (10, True, f"add lost 10 attempts (max_work_timeouts); the last one's process {KILLED}"),
        (9, True, "add was lost with 30 workers (3 for each of max_work_timeouts)"),
        (10, False, f"add's process {KILLED}, and restart_after_work_timeout is off"),
        (9, False, "add lost its worker, and restart_after_work_timeout is off"),
    ],
)
def test_how_the_last_attempts_process_ended_is_told(world: World, attempt: int, restart: bool, told: str) -> None:
    """And nothing of the one before, where nobody knows how the last one's did."""
    world.tell()
    world.store.actors.override("add", {"restart_after_work_timeout": restart})
    claimed(world, timeouts=9, workers_lost=29, attempts=10)
    world.store.decisions.note_lost("w#7", KILLED)
    world.store.database["decisions"].update_one({}, {"$set": {"lostAttempt.attempt": attempt}})
    worker(world, "w", silent=True)
    assert scanner(world, "workers").run_once().repaired == {Rule.WORKER_LOST: 1}
    error = world.process(process_of(0)).error
    assert error is not None and error.message == told


def test_how_it_ended_is_noted_of_what_it_works_on_and_nothing_else(world: World) -> None:
    claimed(world, count=4, attempts=2)
    decisions = world.store.database["decisions"]
    decisions.update_one({"_id": start_of(1)}, {"$set": {"worker": "w#77"}})
    decisions.update_one({"_id": start_of(2)}, {"$set": {"state": "finished"}})
    decisions.update_one({"_id": start_of(3)}, {"$set": {"worker": "w#7#5"}})
    world.store.decisions.note_lost("w#7", "$odd")
    noted = {"lostAttempt": {"attempt": 2, "how": "$odd"}}
    assert [found.get("lostAttempt") for found in decisions.find().sort("_id", 1)] == [
        noted["lostAttempt"], None, None, noted["lostAttempt"]
    ]  # fmt: skip


def test_one_process_of_a_worker(world: World) -> None:
    """A pool child that died: its parent rescues what it held, and no more."""
    claimed(world, count=3)
    world.store.database["decisions"].update_one({"_id": start_of(1)}, {"$set": {"worker": "w#77"}})
    repairer = Repairer(world.app.resources, world.app.outbox)
    assert rescue(world.app.resources, repairer, ["w#7"]) == {Rule.WORKER_LOST: 2}
    assert states(world) == ["queued", "queued", "working"]


def test_what_waits_for_something_else_keeps_the_worker_known(world: World) -> None:
    """Finished by the worker, its parent not applied: it is not forgotten before that is seen to."""
    claimed(world, FINISHED, outcome=Outcome(pass_key="old", value="1"))
    world.store.database["graphs"].update_one({}, {"$set": {"notFinished": {"parent": world.store.now()}}})
    worker(world, "w", silent=True)
    result = scanner(world, "workers").run_once()
    assert (result.error, result.repaired) == (None, {})
    assert [w.id for w in world.store.workers.all()] == ["w"]
