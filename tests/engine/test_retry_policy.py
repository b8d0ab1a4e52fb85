"""The policy and strategies, seen from outside: when the attempts of an actor that raises come, and what is logged.

docs/retry-sources.md names these tests beside those of `test_retry`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from recovery import Backoff, BestEffort, Reason, Recovery, Request, RetryAction
from recovery.records import Decision, DecisionState, ProcessState
from tests.engine.test_retry import only, pass_by, retry_of
from tests.world import World

AWAY = ConnectionRefusedError(111, "away")
RESET = ConnectionResetError(104, "reset")
INITIAL, COEFFICIENT, JITTER, MAXIMUM, TOTAL = 60, 1.2, 30, 3600, 24 * 3600
"""The policy of Hive's design, in seconds."""
WRITING = 1
"""Seconds from a failure to its write, at most: the retry is due its delay after the write."""


def failing(error: BaseException) -> Callable[[], None]:
    def step() -> None:
        raise error.with_traceback(None)

    return step


def start(world: World, error: BaseException, **settings: Any) -> str:
    """Start a process whose only task raises an error, and run its first attempt."""
    process_id = world.start(world.app.process("order", **settings)(failing(error)))
    world.pump()
    return process_id


def delay_of(decision: Decision) -> float:
    assert decision.recovery_time is not None
    return (decision.recovery_time - retry_of(decision).failed_at).total_seconds()


@pytest.mark.thorough
def test_the_default_policy_from_the_first_failure_to_the_last(world: World) -> None:
    process_id, delays = start(world, AWAY), list[float]()
    while (decision := only(world, process_id)).state is DecisionState.DELAYED:
        delays.append(delay_of(decision))
        assert len(delays) == retry_of(decision).cycle
        pass_by(world, delays[-1])
        world.scan()
        assert world.pump() == 1
    bases = [min(INITIAL * COEFFICIENT**retry, MAXIMUM) for retry in range(len(delays))]
    for delay, base in zip(delays, bases, strict=True):
        most = min(base + JITTER, MAXIMUM) + WRITING
        assert base - 0.01 <= delay <= most, "the jitter of a delay is not in the next one"
    jitters = [delay - base for delay, base in zip(delays, bases, strict=True) if base < MAXIMUM - JITTER]
    assert max(jitters) - min(jitters) > WRITING
    assert len(delays) > 35 and all(one >= MAXIMUM - 0.01 for one in delays[25:]), "at the maximum retries go on"
    assert TOTAL - MAXIMUM - WRITING * len(delays) < sum(delays) <= TOTAL
    error = world.process(process_id).error
    assert error is not None and (error.code, error.exhausted) == (40005, 21001)
    assert error.no_retry == f"its total duration of 1d is over after {len(delays)} retries"


def test_a_policy_of_the_application_holds_for_all_that_say_nothing(world: World) -> None:
    world = World(world.settings, Recovery(world.settings, retry=Backoff(initial=5, jitter=(0, 0))))
    plain = world.app.actor("plain")(failing(AWAY))
    own = world.app.actor("own", retry=Backoff(initial=20, jitter=(0, 0)))(failing(AWAY))

    @world.app.process()
    def order() -> None:
        plain.schedule()
        own.schedule()
        plain.options(retry=Backoff(initial=30, jitter=(0, 0))).schedule()

    process_id = world.start(order)
    world.pump()
    delayed = [one for one in world.decisions(process_id).values() if one.state is DecisionState.DELAYED]
    assert sorted(round(delay_of(one)) for one in delayed) == [5, 20, 30]


class Soon(RetryAction):
    """A kind of action of a user's own."""


class AsksTheBroker:
    """A strategy that asks a server before it answers, and wants two retries."""

    def __init__(self, url: str) -> None:
        self.host, _, self.port = url.removeprefix("redis://").partition("/")[0].partition(":")
        self.answers: list[bytes] = []

    async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
        del reason
        reader, writer = await asyncio.open_connection(self.host, int(self.port))
        writer.write(b"PING\r\n")
        self.answers.append(await reader.readline())
        writer.close()
        return Soon(0.001) if request.retry_attempts < 2 else RetryAction.no_retry()


def test_a_strategy_may_do_io_and_answers_with_an_action_of_any_kind(world: World) -> None:
    strategy = AsksTheBroker(world.settings.broker_url)
    process_id = start(world, AWAY, retry=strategy)
    assert strategy.answers == [b"+PONG\r\n"] * 3
    error = world.process(process_id).error
    assert error is not None and error.no_retry == "the strategy AsksTheBroker wants no retry"
    assert retry_of(only(world, process_id)).count == 2


def test_no_strategy_retries_an_unknown_error_of_an_idempotent_actor(world: World) -> None:
    process_id = start(world, ValueError("a bug"), retry=BestEffort(), idempotent=True)
    error = world.process(process_id).error
    assert error is not None and (error.reason, error.no_retry) == ("UNKNOWN", "no catalogue knows it")


def test_a_retry_and_a_refusal_are_logged_with_code_reason_delay_and_attempt(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    start(world, RESET, retry=Backoff(initial=60, jitter=(0, 0)))
    world.app.actors.clear()
    refused = start(world, RESET, idempotent=False)
    assert world.process(refused).state is ProcessState.BROKEN
    names = ("recovery_attempt", "error_code", "retry_reason", "retry_count", "retry_delay", "no_retry")
    logged = [vars(one) for one in caplog.records if getattr(one, "retry_reason", None)]
    why = "the connection was closed before the answer came, and it is not idempotent"
    assert [tuple(fields[name] for name in names) for fields in logged] == [
        (1, 21003, "SOCKET_CLOSED_WHILE_IN_FLIGHT", 1, 60.0, None),
        (1, 21003, "SOCKET_CLOSED_WHILE_IN_FLIGHT", None, None, why),
    ]
    assert "code 21003, reason SOCKET_CLOSED_WHILE_IN_FLIGHT; retry 1 in 60.000 s" in caplog.text
    assert f"code 21003, reason SOCKET_CLOSED_WHILE_IN_FLIGHT; not tried again: {why}" in caplog.text
