"""Explanations of how an error would be handled, and when it would be retried: for operators, and for tests. Pure.

A reason alone, or an answer of Couchbase, is judged as a call in place, by the best effort strategy. An error or a code
is judged as an error of a task, by the default policy.
"""

from __future__ import annotations

import builtins
import importlib
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from recovery.errors import InputError
from recovery.records import given
from recovery.retry.catalogue import Catalogue, Classified, find
from recovery.retry.catalogues import SHIPPED, couchbase, hive_replication
from recovery.retry.codes import GENERIC_ERROR, OUR_OWN, ErrorClass, ErrorCode, class_of
from recovery.retry.orchestrator import controlled_backoff
from recovery.retry.policy import DEFAULT, Backoff
from recovery.retry.reasons import SERVICE_RESPONSE_CODE_INDICATED, UNKNOWN, reason_of
from recovery.retry.signs import Signs
from recovery.retry.strategies import exponential


@dataclass(frozen=True, slots=True)
class ErrorExplanation:
    """The explanation of an error. `delay_seconds` is None if the error is not retried."""

    reason: str
    allows_non_idempotent_retry: bool
    always_retry: bool
    code: int
    error_class: str
    retry: bool
    delay_seconds: float | None
    why: str

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        return {("class" if key == "error_class" else key): value for key, value in fields.items()}


def explain_error(  # noqa: PLR0913
    name: str,
    *,
    text: str = "",
    number: int | None = None,
    status: int | None = None,
    idempotent: bool = True,
    attempt: int = 0,
    catalogues: tuple[Catalogue, ...] = SHIPPED,
    policy: Backoff = DEFAULT,
    random: Random | None = None,
) -> ErrorExplanation:
    """Explain how an actor's exception is handled.

    Args:
        name: The full name of its class, `package.module.Name`. If the class is not installed, only its name counts.
        text: The error's text.
        number: The server's error code, or the errno.
        status: The HTTP status of the answer.
        idempotent: Whether the task is idempotent.
        attempt: The number of earlier retries.
        catalogues: The catalogues in use.
        policy: The policy of the task.
        random: The source of the jitter.

    Raises:
        InputError: The name is not that of an error class, or `attempt` is negative.
    """
    signs = Signs(_types(name), text, number, frozenset(), status)
    classified = find(signs, catalogues)
    source = f"catalogue {classified.catalogue}: {classified.code.text}" if classified else "no catalogue knows it"
    return _by_policy(classified or Classified(GENERIC_ERROR, UNKNOWN), source, idempotent, attempt, policy, random)


def explain_code(
    number: int,
    *,
    idempotent: bool = True,
    attempt: int = 0,
    catalogues: tuple[Catalogue, ...] = SHIPPED,
    policy: Backoff = DEFAULT,
    random: Random | None = None,
) -> ErrorExplanation:
    """Explain how an error with this code is handled; see `explain_error` for the arguments.

    A code that Hive's design reclassified is answered with its present code.

    Raises:
        InputError: The number is outside all ranges, or `attempt` is negative.
    """
    error_class = class_of(number)
    if (hive := hive_replication.by_number(number)) is not None:
        source = hive.why if hive.was in (None, hive.code.number) else f"{hive.why} (it was {hive.was})"
        return _by_policy(Classified(hive.code, hive.reason), source, idempotent, attempt, policy, random)
    for entry in (entry for catalogue in catalogues for entry in catalogue.entries):
        if entry.code.number == number:
            classified = Classified(entry.code, entry.reason)
            return _by_policy(classified, entry.code.text, idempotent, attempt, policy, random)
    for own_code in OUR_OWN:
        if own_code.number == number:
            return _by_policy(Classified(own_code, UNKNOWN), own_code.text, idempotent, attempt, policy, random)
    reason = SERVICE_RESPONSE_CODE_INDICATED if error_class is ErrorClass.RETRIABLE else UNKNOWN
    classified = Classified(ErrorCode(number, "?", "by its range"), reason)
    return _by_policy(
        classified, "no catalogue has it, so its range alone says what it is", idempotent, attempt, policy, random
    )


def explain_couchbase(
    service: str,
    status: int,
    *,
    operation: str = "",
    text: str = "",
    error_map_retry: bool | None = None,
    idempotent: bool = False,
    attempt: int = 0,
) -> ErrorExplanation:
    """Explain how an answer of Couchbase is handled under the best effort strategy; see `couchbase.response`."""
    classified = couchbase.response(service, status, operation=operation, text=text, error_map_retry=error_map_retry)
    if classified.reason is UNKNOWN:
        why = "the answer is not in the list of answers that are retried"
        return _explanation(classified, why, None)
    return _best_effort(classified, idempotent, attempt)


def explain_reason(name: str, *, idempotent: bool = False, attempt: int = 0) -> ErrorExplanation:
    """Explain how a call that failed for this reason is handled under the best effort strategy.

    Raises:
        InputError: There is no such reason, or `attempt` is negative.
    """
    reason = reason_of(name)
    code = GENERIC_ERROR if reason is UNKNOWN else ErrorCode(20000, reason.name, reason.meaning)
    return _best_effort(Classified(code, reason), idempotent, attempt)


def _best_effort(classified: Classified, idempotent: bool, attempt: int) -> ErrorExplanation:
    attempt = _checked_attempt(attempt)
    reason = classified.reason
    if reason.always_retry:
        return _explanation(
            classified,
            f"{reason.meaning}; it is always retried, by the controlled back-off",
            controlled_backoff(attempt),
        )
    if reason is UNKNOWN:
        return _explanation(classified, reason.meaning, None)
    if idempotent or reason.allows_non_idempotent_retry:
        return _explanation(classified, f"{reason.meaning}; best effort retries it", exponential(attempt))
    return _explanation(classified, f"{reason.meaning}; it is not idempotent, so it may not be sent again", None)


def _by_policy(
    classified: Classified, source: str, idempotent: bool, attempt: int, policy: Backoff, random: Random | None
) -> ErrorExplanation:
    attempt = _checked_attempt(attempt)
    if not classified.is_retriable:
        return _explanation(classified, f"{source}; waiting does not help", None)
    if not (idempotent or classified.reason.allows_non_idempotent_retry or classified.reason.always_retry):
        return _explanation(classified, f"{source}; {classified.reason.meaning}, and it is not idempotent", None)
    delay = max(policy.delay(attempt, random or Random()), classified.retry_after or 0.0)
    return _explanation(classified, f"{source}; it is retried by the policy", delay)


def _explanation(classified: Classified, why: str, delay: float | None) -> ErrorExplanation:
    reason = classified.reason
    return ErrorExplanation(
        reason=reason.name,
        allows_non_idempotent_retry=reason.allows_non_idempotent_retry,
        always_retry=reason.always_retry,
        code=classified.code.number,
        error_class=classified.code.error_class.value,
        retry=delay is not None,
        delay_seconds=delay,
        why=why,
    )


def _checked_attempt(attempt: int) -> int:
    if attempt < 0:
        raise InputError(f"attempt {attempt}: must be the number of retries before this one, from 0 on")
    return attempt


def _types(name: str) -> tuple[str, ...]:
    """Return the full names of a class and its superclasses."""
    module, _, attribute = name.rpartition(".")
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise InputError(f"{given.shown(name)} is not the name of an error class; give it as 'package.module.Name'")
    error_class: object = getattr(builtins, name, None) if not module else None
    if module:
        try:
            error_class = getattr(importlib.import_module(module), attribute, None)
        except ImportError:
            return (name,)
    if not (isinstance(error_class, type) and issubclass(error_class, BaseException)):
        raise InputError(f"{given.shown(name)} is not an error class that is there; give it as 'package.module.Name'")
    return tuple(f"{cls.__module__}.{cls.__qualname__}" for cls in error_class.__mro__[:-1])
