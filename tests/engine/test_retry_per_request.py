"""A strategy and transient errors of one request: `options(retry=…, retryable=[…])`."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from recovery import Backoff, BestEffort, Durable, ErrorCode, Reason, Recovery, Request, RetryAction
from recovery.errors import InputError
from recovery.records import Decision, DecisionState, ProcessState, RetryOptions
from tests.world import World

AWAY = ConnectionRefusedError(111, "away")


class Every:
    """Retries after so many seconds, and notes what it was asked."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked: list[str] = []

    async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
        del request
        self.asked.append(reason.name)
        return RetryAction(self.seconds)


def only(world: World, process_id: str, task: str = "start") -> Decision:
    decision = world.store.decisions.get(f"{process_id}/{task}")
    assert decision is not None
    return decision


def delay_of(decision: Decision) -> float:
    assert decision.recovery_time is not None and decision.retry is not None
    return round((decision.recovery_time - decision.retry.failed_at).total_seconds())


def test_each_of_three_requests_has_its_own_strategy(world: World) -> None:
    mine = world.app.strategy("mine", Every(77))

    @world.app.actor(retry=Every(50))
    def charge() -> None:
        raise AWAY

    @world.app.process()
    def order() -> None:
        charge.schedule()
        charge.options(retry=mine).schedule()
        charge.options(retry=Durable(Backoff(initial=99, jitter=(0, 0)))).schedule()
        charge.options(retry=None, fallible=True).schedule()

    process_id = world.start(order)
    world.pump()
    delayed = [one for one in world.decisions(process_id).values() if one.state is DecisionState.DELAYED]
    assert sorted(map(delay_of, delayed)) == [50, 77, 99]
    assert mine.asked == ["NODE_NOT_AVAILABLE"]  # type: ignore[attr-defined]


def test_a_process_is_started_with_one(world: World) -> None:
    mine = world.app.strategy("mine", Every(77))

    @world.app.process(retry=Backoff(initial=5, jitter=(0, 0)))
    def order() -> None:
        raise AWAY

    process_id = world.start(order.options(retry=mine))
    world.pump()
    assert delay_of(only(world, process_id)) == 77


def test_a_strategy_that_an_actor_has_needs_no_other_name(world: World) -> None:
    patient = Every(60)
    world.app.actor("other", retry=patient)(lambda: None)

    @world.app.process()
    def order() -> None:
        raise AWAY

    process_id = world.start(order.options(retry=patient))
    world.pump()
    assert delay_of(only(world, process_id)) == 60
    task = world.store.tasks.get(f"{process_id}/start")
    assert task is not None and task.retry == RetryOptions(enabled=True, strategy="actor.other")


def test_best_effort_needs_no_name(world: World) -> None:
    errors = [AWAY, AWAY]

    @world.app.process(retry=None)
    def order() -> str:
        if errors:
            raise errors.pop()
        return "done"

    process_id = world.start(order.options(retry=BestEffort()))
    world.pump()
    assert world.process(process_id).state is ProcessState.FINISHED, "in its slot"


def test_a_name_that_the_workers_application_does_not_have(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The task is judged by its actor's strategy, and that is logged: an older version of the code runs it."""
    mine = world.app.strategy("mine", Every(77))

    @world.app.process(retry=Every(50))
    def order() -> None:
        raise AWAY

    process_id = world.start(order.options(retry=mine))
    older = Recovery(world.settings)
    older.process("order", retry=Every(50))(order.function)
    with caplog.at_level(logging.WARNING):
        world.pump(serve=older.actors)
    assert delay_of(only(world, process_id)) == 50
    assert "no strategy named mine, which the task asks for" in caplog.text


class NotYet(Exception):
    """What the request needs is not there yet."""


class Later(NotYet):
    pass


@pytest.mark.parametrize(
    "names",
    [[NotYet], [Later], [f"{__name__}.NotYet"], [40000], ["GENERIC_ERROR"], [ErrorCode(40000, "GENERIC_ERROR", "")]],
    ids=["superclass", "class", "text", "code", "code by name", "ErrorCode"],
)
@pytest.mark.parametrize("idempotent", [True, False])
def test_an_error_that_the_caller_knows_to_be_transient(world: World, names: list[Any], idempotent: bool) -> None:
    """It is an answer that changed nothing, so a task that is not idempotent is retried as well."""

    @world.app.process(retry=Backoff(initial=30, jitter=(0, 0)), idempotent=idempotent)
    def order() -> None:
        raise Later("order 7")

    process_id = world.start(order.options(retryable=names))
    world.pump()
    decision = only(world, process_id)
    assert decision.state is DecisionState.DELAYED
    assert decision.retry is not None
    assert (decision.retry.code, decision.retry.reason) == (40000, "SERVICE_RESPONSE_CODE_INDICATED")
    assert delay_of(decision) == 30


def test_another_error_of_such_a_task_is_not(world: World) -> None:
    @world.app.process()
    def order() -> None:
        raise KeyError("bug")

    process_id = world.start(order.options(retryable=[NotYet]))
    world.pump()
    assert world.process(process_id).state is ProcessState.BROKEN


def test_both_are_kept_with_a_policy(world: World) -> None:
    @world.app.actor()
    def charge() -> None: ...

    @world.app.process()
    def order() -> None:
        charge.options(retry=Backoff(initial=7), retryable=[NotYet, 27001]).schedule()

    process_id = world.start(order)
    world.pump()
    (child,) = only(world, process_id).children
    assert child.retry is not None
    assert (child.retry.initial, child.retry.retryable) == (7, (f"{__name__}.NotYet", "27001"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"retry": Every(1)}, r"order.options\(...\): this Every has no name.*app.strategy\('a-name', Every\(...\)\)"),
        ({"retry": Every}, r"order.options\(...\): retry=.* must be a Backoff"),
        ({"retry": 5}, r"order.options\(...\): retry=5 must be a Backoff"),
        ({"retryable": [5]}, "error code 5: must be from 10000 to 49999"),
        ({"retryable": [int]}, "must be a class of errors"),
        ({"retryable": ["not a name!"]}, "must be a class of errors"),
        ({"retryable": KeyError}, "must be a list of classes of errors"),
        ({"retryable": "KeyError"}, "must be a list of classes of errors"),
        ({"retryable": [*range(10000, 10021)]}, "names 21 errors; at most 20 are kept"),
    ],
)
def test_what_options_refuse(world: World, options: dict[str, Any], why: str) -> None:
    order = world.app.process("order")(lambda: None)
    with pytest.raises(InputError, match=why):
        order.options(**options)


def test_names_of_strategies(world: World) -> None:
    strategy = Every(1)
    assert world.app.strategy("mine", strategy) is strategy
    assert world.app.strategy("mine", strategy) is strategy, "the same again is no error"
    with pytest.raises(InputError, match="another strategy has this name"):
        world.app.strategy("mine", Every(2))
    with pytest.raises(InputError, match="use letters, digits"):
        world.app.strategy("not a name", Every(2))
    with pytest.raises(InputError, match=r"app.strategy\('other', ...\): strategy=5 must be"):
        world.app.strategy("other", 5)  # type: ignore[arg-type]
