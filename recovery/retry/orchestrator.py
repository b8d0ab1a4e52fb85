"""The orchestrator (RFC 49, 'Retry Orchestration'): decides for every failed request whether and when it is retried.

For a reason that is always retried, the delay is the controlled back-off. For other reasons the request's strategy is
asked. A delay ends at the request's deadline at the latest. If the deadline shortened it, the request is then cancelled
instead of sent, because it could only time out.

Every retry and every refusal is logged. The log record has the reason, the code, the delay and the attempt also as
fields: `retry_reason`, `retry_code`, `retry_delay` and `retry_attempt`.
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
"""Seconds before the first retries of the controlled back-off."""
_CONTROLLED_MOST = 1.0
"""Seconds before each further retry of the controlled back-off."""

STRATEGY_TIMEOUT = 30.0
"""Maximum seconds for a strategy's answer. A strategy that takes long occupies a worker's slot."""


class Verdict(StrEnum):
    """What happens to a failed request."""

    RETRY = "retry"
    CANCEL = "cancel"
    """The request is not sent again: after the delay its deadline is reached."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Ruling:
    """The orchestrator's decision: what happens to the request, after how many seconds, and why."""

    verdict: Verdict
    delay: float
    why: str


def controlled_backoff(retries: int) -> float:
    """Return the seconds before a retry that happens whatever the strategy says.

    The delays keep a bug from overloading a cluster.

    Args:
        retries: The number of earlier retries.
    """
    return _CONTROLLED[retries] if retries < len(_CONTROLLED) else _CONTROLLED_MOST


async def rule(request: Request, reason: Reason) -> Ruling:
    """Decide about a request that failed for this reason. Does not raise.

    If the strategy raises or returns an invalid answer, the request fails, and the ruling says why.
    """
    if reason.always_retry:
        return _capped(request, controlled_backoff(request.retry_attempts), "this reason is always retried")
    return await _ask_strategy(request, reason)


async def maybe_retry(
    request: Request,
    reason: Reason,
    *,
    code: ErrorCode | None = None,
    error: BaseException | None = None,
    level: int = logging.INFO,
    refusal_level: int = logging.WARNING,
) -> Ruling:
    """Decide as `rule` does, count a retry, and log the decision. Does not raise.

    Args:
        request: The failed request.
        reason: Why it failed.
        code: The error's code, for the log.
        error: The error, for the log.
        level: Log level of a retry.
        refusal_level: Log level if there is no retry.
    """
    ruling = await rule(request, reason)
    cause = reason.name if code is None else f"{reason.name}, {code.number}"
    detail = "" if error is None else f": {' '.join(str(error).split())[:ERROR_LENGTH]}"
    fields: dict[str, object] = {"retry_reason": reason.name, "retry_code": code and code.number}
    if ruling.verdict is Verdict.FAIL:
        fields |= {"retry_delay": None, "retry_attempt": request.retry_attempts}
        detail = f"{ruling.why}{detail}"
        log.log(refusal_level, "%s: not retried (%s): %s", request.name, cause, detail, extra=fields)
        return ruling
    request.note_retry(reason)
    fields |= {"retry_delay": ruling.delay, "retry_attempt": request.retry_attempts}
    log.log(
        level, "%s: retry %d in %.3f s (%s)%s%s", request.name, request.retry_attempts, ruling.delay, cause,
        "; its deadline comes first" if ruling.verdict is Verdict.CANCEL else "", detail, extra=fields,
    )  # fmt: skip
    return ruling


async def _ask_strategy(request: Request, reason: Reason) -> Ruling:
    strategy = type(request.retry_strategy).__name__
    limit = asyncio.timeout(STRATEGY_TIMEOUT)
    try:
        async with limit:
            answer = request.retry_strategy.retry_after(request, reason)
            action = await answer if inspect.isawaitable(answer) else answer
    except (Exception, asyncio.CancelledError) as error:  # the strategy may be users' code
        if limit.expired():
            return Ruling(Verdict.FAIL, 0.0, f"the strategy {strategy} gave no answer within {STRATEGY_TIMEOUT:g} s")
        return Ruling(Verdict.FAIL, 0.0, f"the strategy {strategy} raised {_short_text(error)}")
    if not isinstance(action, RetryAction):
        why = f"the strategy {strategy} answered {given.shown(action)}; it has to give a RetryAction"
        return Ruling(Verdict.FAIL, 0.0, why)
    if action.duration is None:
        return Ruling(Verdict.FAIL, 0.0, f"the strategy {strategy} wants no retry")
    try:
        delay = given.duration(action.duration)
    except ValueError:
        delay = None
    if delay is None or not given.is_finite(delay) or delay < 0:
        why = f"the strategy {strategy} wants a retry after {given.shown(action.duration)}; it has to be a duration"
        return Ruling(Verdict.FAIL, 0.0, why)
    return _capped(request, delay, f"the strategy {strategy} says so")


def _short_text(error: BaseException) -> str:
    """Return an error's class and the beginning of its text, which can be stored, whatever the text contains."""
    kind = type(error).__name__
    try:
        text = given.exact(str(error))[:ERROR_LENGTH]
    except BaseException as failure:  # the error's own __str__ may raise
        return f"{kind} (no text: its __str__ raised {type(failure).__name__})"
    return f"{kind}: {text.encode(errors='replace').decode()}"


def _capped(request: Request, delay: float, why: str) -> Ruling:
    remaining = request.remaining
    if remaining is not None and delay >= remaining:
        return Ruling(Verdict.CANCEL, max(0.0, remaining), f"{why}, and its deadline comes first")
    return Ruling(Verdict.RETRY, delay, why)


T = TypeVar("T")


def decided(asked: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result.

    It runs in an event loop of its own, and in a thread of its own if this thread already runs an event loop.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(asked)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, asked).result()
