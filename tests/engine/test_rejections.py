"""Of each write that a condition rejects the first condition that did not hold is counted, and the latest are kept."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from recovery import Recovery
from recovery.engine import Slot
from recovery.engine.apply import rebuild
from recovery.engine.apply.interruption import interrupt
from recovery.engine.apply.rebuild import remake_graph
from recovery.engine.rejections import Conditions, Guard, Step, guard_of
from recovery.health import look, repair
from recovery.metrics import REJECTED
from recovery.records import DecisionState, ErrorInfo, Outcome
from recovery.records.ids import new_pass, record_id
from tests.documents import database_of
from tests.world import World, arguments

WHEN = datetime(2030, 1, 1, tzinfo=UTC)
EXPECTED = Conditions("add", (DecisionState.QUEUED,), "p", epoch=1, restarts=0, deadline=WHEN)
STORED = {"actor": "add", "state": "queued", "pass": "p", "epoch": 1, "recoveryTime": WHEN}


@pytest.mark.parametrize(
    ("changes", "guard"),
    [
        ({"actor": "other", "epoch": 2}, Guard.ACTOR),
        ({"epoch": 2, "pass": "q"}, Guard.EPOCH),
        ({"restarts": 1, "pass": "q"}, Guard.EPOCH),
        ({"pass": "q", "state": "working"}, Guard.PASS),
        ({"state": "working", "recoveryTime": None}, Guard.STATE),
        ({"state": {"another": "program's"}}, Guard.STATE),
        ({"recoveryTime": None}, Guard.DEADLINE),
        ({}, Guard.PASSING),
    ],
)
def test_the_first_condition_that_did_not_hold(changes: dict[str, Any], guard: Guard) -> None:
    assert guard_of(EXPECTED, STORED | changes) is guard


def test_what_is_not_there_is_gone() -> None:
    assert guard_of(EXPECTED, None) is Guard.GONE


def test_all_hold_but_the_tasks_time() -> None:
    assert guard_of(Conditions.of_claim("add", "p", is_timed=True), STORED) is Guard.DEADLINE


class Counts:
    """What was counted since it was made."""

    def __init__(self) -> None:
        self._before = {pair: self._count(*pair) for pair in self._pairs()}

    def of(self, step: Step) -> dict[str, float]:
        """{guard: how often it rejected this step}."""
        since = {pair: self._count(*pair) - before for pair, before in self._before.items()}
        return {guard.value: count for (one, guard), count in since.items() if one is step and count}

    def _pairs(self) -> list[tuple[Step, Guard]]:
        return [(step, guard) for step in Step for guard in Guard]

    def _count(self, step: Step, guard: Guard) -> float:
        return float(REJECTED.labels(step.value, guard.value)._value.get())


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def add(app: Recovery) -> Any:
    return app.process("add")(lambda: "added")


def latest(world: World) -> list[tuple[str, str, str]]:
    world.store.catch_up(10)
    return [(one.step, one.guard, one.record) for one in world.store.rejected_writes.latest()]


def claim(world: World, message: list[str]) -> None:
    slot = Slot(world.app.resources, world.app.outbox, world.app.actors, "w#1")
    slot.run(world.app.actors["add"], *message)


def test_messages_that_are_old_come_twice_or_are_of_nothing(world: World, add: Any, counts: Counts) -> None:
    key = record_id(world.start(add), "start")
    world.tell()
    message = world.pop(["add"])
    assert message is not None
    claim(world, [key, new_pass()])
    assert counts.of(Step.CLAIM) == {"pass": 1} and latest(world) == [("claim", "pass", key)]
    claim(world, arguments(message))
    assert counts.of(Step.CLAIM) == {"pass": 1}, "it was claimed"
    claim(world, arguments(message))
    claim(world, [record_id("f" * 32, "start"), new_pass()])
    assert counts.of(Step.CLAIM) == {"pass": 1, "state": 1, "gone": 1}
    assert latest(world) == [("claim", "pass", key)], "one a second"
    world.store.actors.save([add.preferences])
    assert latest(world) == [("claim", "pass", key)], "a worker that starts keeps it"


def test_a_result_that_comes_late(world: World, app: Recovery, counts: Counts) -> None:
    requeued: list[str] = []

    @app.process("add", accept_first=False)
    def add() -> str:
        past = {"recoveryTime": datetime(2020, 1, 1, tzinfo=UTC)}
        database_of(world.store)["decisions"].update_one({"_id": key}, {"$set": past})
        judged = world.store.decisions.briefs([key])
        requeued.extend(one.id for one in world.store.requeues.timed_out([key], new_pass(), judged))
        return "added"

    key = record_id(world.start(add), "start")
    world.tell()
    message = world.pop(["add"])
    assert message is not None
    claim(world, arguments(message))
    assert requeued == [key]
    assert counts.of(Step.FINISH) == {"pass": 1} and ("finish", "pass", key) in latest(world)


def test_what_ended_in_an_epoch_before(world: World, app: Recovery, add: Any, counts: Counts) -> None:
    process_id = world.start(add)
    world.pump()
    decision = world.store.decisions.get(record_id(process_id, "start"))
    assert decision is not None
    error = Outcome(error=ErrorInfo(kind="E", message="m"), pass_key="p")
    failed = decision.evolve(outcome=error)
    interrupt(app.resources, failed)
    assert counts.of(Step.INTERRUPT) == {"state": 1}, "its process is over"
    aborted = world.start(add)
    unfinished = world.store.decisions.get(record_id(aborted, "start"))
    assert unfinished is not None
    app.abort(aborted, "a test")
    interrupt(app.resources, unfinished.evolve(outcome=error))
    assert counts.of(Step.INTERRUPT) == {"state": 1, "epoch": 1}
    interrupt(app.resources, failed.evolve(id=record_id("f" * 32, "start")))
    assert counts.of(Step.INTERRUPT) == {"state": 1, "epoch": 1, "gone": 1}


def test_a_repair_by_two(world: World, add: Any, counts: Counts) -> None:
    """Both have found it overdue; the second finds it requeued."""
    key = record_id(world.start(add), "start")
    world.tell()
    held = {"state": "working", "worker": "w#1", "recoveryTime": datetime(2020, 1, 1, tzinfo=UTC)}
    database_of(world.store)["decisions"].update_one({"_id": key}, {"$set": held})
    seen = look(world.app.resources, key.partition("/")[0])
    repair(world.app.resources, seen, "a test")
    assert counts.of(Step.REPAIR) == {}
    repair(world.app.resources, seen, "a test")
    assert counts.of(Step.REPAIR) == {"state": 1} and latest(world) == [("repair", "state", key)]


def test_a_graph_that_changed_while_it_was_judged(
    world: World, add: Any, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_id = world.start(add)
    world.tell()
    graphs, original = database_of(world.store)["graphs"], rebuild.graph_of
    graphs.update_one({"_id": process_id}, {"$set": {"notFinished": {}}})

    def slow(*args: Any, **options: Any) -> Any:
        graphs.update_one({"_id": process_id}, {"$inc": {"version": 1}})
        return original(*args, **options)

    monkeypatch.setattr(rebuild, "graph_of", slow)
    assert remake_graph(world.app.resources, process_id) is False
    assert counts.of(Step.REPAIR) == {"version": 1} and latest(world) == [("repair", "version", process_id)]
    monkeypatch.undo()
    assert remake_graph(world.app.resources, process_id) is True
    assert counts.of(Step.REPAIR) == {"version": 1}
