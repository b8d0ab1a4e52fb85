"""Tasks with a time: delayed in MongoDB, found by the Decision scanner, never in Celery's hands before."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from recovery import Recovery
from recovery.records import Decision, DecisionState
from recovery.rules import Rule
from recovery.scan import DecisionScanner
from tests.store.writing import is_close
from tests.world import World, check_quiet

DELAY = 3600.0


@pytest.fixture
def later(app: Recovery) -> Any:
    return app.actor("later")(lambda *values: list(values))


def the(world: World, actor: str) -> Decision:
    (found,) = world.store.database["decisions"].find({"actor": actor})
    decision = world.store.decisions.get(found["_id"])
    assert decision is not None
    return decision


def its_time_comes(world: World, decision: Decision) -> None:
    now = world.store.now()
    world.store.database["decisions"].update_one({"_id": decision.id}, {"$set": {"recoveryTime": now, "eta": now}})


@pytest.mark.parametrize(
    "options",
    [
        lambda _: {"delay": DELAY},
        lambda _: {"delay": timedelta(seconds=DELAY)},
        lambda now: {"eta": now + timedelta(seconds=DELAY)},
        lambda now: {"eta": now, "delay": DELAY},
    ],
    ids=["delay", "delay as a timedelta", "eta", "both"],
)
def test_it_is_delayed_and_then_due(world: World, later: Any, options: Callable[[Any], dict[str, Any]]) -> None:
    times = options(world.store.now())

    def timed() -> Any:
        return later.options(**times).schedule(1)

    process_id = world.start(world.app.process()(timed))
    world.pump()
    delayed = the(world, "later")
    assert delayed.state is DecisionState.DELAYED
    assert is_close(delayed.recovery_time, world.store.now() + timedelta(seconds=DELAY))
    assert world.redis.llen("later") == 0
    scanner = DecisionScanner(world.app.resources, world.app.outbox)
    assert scanner.run_once().looked_at == 0, "not before its time"
    its_time_comes(world, delayed)
    assert scanner.run_once().repaired == {Rule.DUE: 1}
    due = the(world, "later")
    assert (due.state, due.timeouts) == (DecisionState.QUEUED, 0)
    world.pump()
    assert world.app.result(process_id, timeout=0) == [1]
    check_quiet(world, process_id)


def test_a_time_that_has_come_does_not_delay(world: World, later: Any) -> None:
    def no_time() -> Any:
        return [later.options(eta=world.store.now()).schedule(1), later.options(delay=0).schedule(2)]

    process_id = world.start(world.app.process()(no_time))
    world.pump()
    assert world.app.result(process_id, timeout=0) == [[1], [2]]


def test_a_delay_counts_from_when_the_task_is_ready(world: World, later: Any) -> None:
    step = world.app.actor("step")(lambda: "value")

    def ready_first() -> Any:
        return later.options(delay=3600).schedule(step.schedule())

    world.start(world.app.process()(ready_first))
    world.pump(serve={"ready_first": world.app.actors["ready_first"]})
    assert the(world, "later").state is DecisionState.WAITING
    world.pump()
    delayed = the(world, "later")
    assert delayed.state is DecisionState.DELAYED
    assert is_close(delayed.recovery_time, world.store.now() + timedelta(hours=1))


@pytest.mark.parametrize("by", ["eta", "delay"])
def test_a_deadline_that_is_missing_does_not_bring_it_forward(world: World, later: Any, by: str) -> None:
    """Another program took it away: its time is known without."""
    when: dict[str, Any] = {"delay": DELAY} if by == "delay" else {"eta": world.store.now() + timedelta(seconds=DELAY)}
    world.start(world.app.process("order")(lambda: later.options(**when).schedule(1)))
    world.pump()
    delayed = the(world, "later")
    update = {"q": {"_id": delayed.id}, "u": {"$unset": {"recoveryTime": 1}}}
    world.store.database.command("update", "decisions", updates=[update], bypassDocumentValidation=True)
    scanner = DecisionScanner(world.app.resources, world.app.outbox)
    assert scanner.run_once().repaired == {Rule.DEADLINE_MISSING: 1}
    assert the(world, "later").recovery_time == delayed.recovery_time
    assert scanner.run_once().repaired == {}
