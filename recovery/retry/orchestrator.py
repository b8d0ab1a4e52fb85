"""The orchestrator (RFC 49, 'Retry Orchestration'): every failed request comes here, and is tried again or not.

A reason that always retries gets the controlled back-off; for any other the request's strategy is asked. A delay is cut
to what is left until the deadline, and a request whose delay was cut is cancelled after it instead of being sent: it
could only time out. Every retry, and every refusal, is logged with its reason; each line has it, the code, the delay
and the attempt as fields of its record as well (`retry_reason`, `retry_code`, `retry_delay`, `retry_attempt`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from recovery.limits import ERROR_LENGTH
from recovery.records import given
from recovery.retry.codes import ErrorCode
from recovery.retry.reasons import Reason
from recovery.retry.strategies import Request, RetryAction

log = logging.getLogger(__name__)

_CONTROLLED = (0.001, 0.01, 0.05, 0.1, 0.5)
_CONTROLLED_MOST = 1.0

STRATEGY_TIMEOUT = 30.0
"""Seconds in which a strategy has to answer: what asks for longer holds the slot of a worker."""


class Verdict(StrEnum):
    """What becomes of a request."""

    RETRY = "retry"
    CANCEL = "cancel"
    """After the delay, without being sent again: its deadline is there."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Ruling:
    """The orchestrator's word: what becomes of a request, after how many seconds, and why."""

    verdict: Verdict
    delay: float
    why: str


def controlled_backoff(retries: int) -> float:
    """Seconds between retries that happen whatever the strategy says: so that a bug does not trample a cluster."""
    return _CONTROLLED[retries] if retries < len(_CONTROLLED) else _CONTROLLED_MOST


async def rule(request: Request, reason: Reason) -> Ruling:
    """What becomes of a request that failed for this reason. Does not raise: a strategy that raises, or answers
    nonsense, fails the request with that said."""
    if reason.always_retry:
        return _capped(request, controlled_backoff(request.retry_attempts), "this reason is always retried")
    return await _asked(request, reason)


async def maybe_retry(
    request: Request,
    reason: Reason,
    *,
    code: ErrorCode | None = None,
    error: BaseException | None = None,
    level: int = logging.INFO,
    refusal_level: int = logging.WARNING,
) -> Ruling:
    """`rule`, and with it count the retry, and log either, with the error's code and text where they are given: a retry
    at this `level`, and that there is none at `refusal_level`. Does not raise."""
    ruling = await rule(request, reason)
    because = reason.name if code is None else f"{reason.name}, {code.number}"
    told = "" if error is None else f": {' '.join(str(error).split())[:ERROR_LENGTH]}"
    fields: dict[str, object] = {"retry_reason": reason.name, "retry_code": code and code.number}
    if ruling.verdict is Verdict.FAIL:
        fields |= {"retry_delay": None, "retry_attempt": request.retry_attempts}
        told = f"{ruling.why}{told}"
        log.log(refusal_level, "%s: not retried (%s): %s", request.name, because, told, extra=fields)
        return ruling
    request.note_retry(reason)
    fields |= {"retry_delay": ruling.delay, "retry_attempt": request.retry_attempts}
    log.log(
        level, "%s: retry %d in %.3f s (%s)%s%s", request.name, request.retry_attempts, ruling.delay, because,
        "; its deadline comes first" if ruling.verdict is Verdict.CANCEL else "", told, extra=fields,
    )  # fmt: skip
    return ruling


async def _asked(request: Request, reason: Reason) -> Ruling:
    strategy = type(request.retry_strategy).__name__
    limit = asyncio.timeout(STRATEGY_TIMEOUT)
    try:
        async with limit:
            answer = request.retry_strategy.retry_after(request, reason)
            action = await answer if inspect.isawaitable(answer) else answer
    except (Exception, asyncio.CancelledError) as error:  # somebody else's code
        if limit.expired():
            return Ruling(Verdict.FAIL, 0.0, f"the strategy {strategy} gave no answer within {STRATEGY_TIMEOUT:g} s")
        return Ruling(Verdict.FAIL, 0.0, f"the strategy {strategy} raised {_told(error)}")
    if not isinstance(action, RetryAction):
        told = f"the strategy {strategy} answered {given.shown(action)}; it has to give a RetryAction"
        return Ruling(Verdict.FAIL, 0.0, told)
    if action.duration is None:
        return Ruling(Verdict.FAIL, 0.0, f"the strategy {strategy} wants no retry")
    try:
        delay = given.duration(action.duration)
    except ValueError:
        delay = None
    if delay is None or not given.is_finite(delay) or delay < 0:
        told = f"the strategy {strategy} wants a retry after {given.shown(action.duration)}; it has to be a duration"
        return Ruling(Verdict.FAIL, 0.0, told)
    return _capped(request, delay, f"the strategy {strategy} says so")


def _told(error: BaseException) -> str:
    """An error in a few words, whatever its text is: it is kept with the task's."""
    kind = type(error).__name__
    try:
        text = given.exact(str(error))[:ERROR_LENGTH]
    except BaseException as failure:  # its own __str__
        return f"{kind} (no text: its __str__ raised {type(failure).__name__})"
    return f"{kind}: {text.encode(errors='replace').decode()}"


def _capped(request: Request, delay: float, why: str) -> Ruling:
    left = request.remaining
    if left is not None and delay >= left:
        return Ruling(Verdict.CANCEL, max(0.0, left), f"{why}, and its deadline comes first")
    return Ruling(Verdict.RETRY, delay, why)


T = TypeVar("T")


def decided(asked: Coroutine[Any, Any, T]) -> T:
    """What is answered, by strategies that may do I/O: in a loop of its own, and in a thread of its own where this one
    has a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(asked)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, asked).result()
