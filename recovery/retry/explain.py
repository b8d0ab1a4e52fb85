"""What would become of an error, and when: for operators to understand, and for tests to check from outside. Pure.

By a reason alone, or by an answer of Couchbase, the best effort strategy is asked, as for a call in place; by an error
or by a code the default policy, as for a task.
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
    """The answer. `delay_seconds` is None where it is not retried."""

    reason: str
    allows_non_idempotent_retry: bool
    always_retry: bool
    code: int
    error_class: str
    retry: bool
    delay_seconds: float | None
    why: str

    def as_dict(self) -> dict[str, Any]:
        found = asdict(self)
        return {("class" if key == "error_class" else key): value for key, value in found.items()}


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
    """What becomes of an actor's exception of this class, `package.module.Name`. Raises InputError for a name that is
    none. A class that is not installed here is known by its name alone."""
    signs = Signs(_types(name), text, number, frozenset(), status)
    found = find(signs, catalogues)
    told = f"catalogue {found.catalogue}: {found.code.text}" if found else "no catalogue knows it"
    return _by_policy(found or Classified(GENERIC_ERROR, UNKNOWN), told, idempotent, attempt, policy, random)


def explain_code(
    number: int,
    *,
    idempotent: bool = True,
    attempt: int = 0,
    catalogues: tuple[Catalogue, ...] = SHIPPED,
    policy: Backoff = DEFAULT,
    random: Random | None = None,
) -> ErrorExplanation:
    """What becomes of an error with this code. One that Hive's design classified anew is answered with its number of
    today. Raises InputError for a number in no range."""
    error_class = class_of(number)
    if (hive := hive_replication.by_number(number)) is not None:
        told = hive.why if hive.was in (None, hive.code.number) else f"{hive.why} (it was {hive.was})"
        return _by_policy(Classified(hive.code, hive.reason), told, idempotent, attempt, policy, random)
    for entry in (entry for catalogue in catalogues for entry in catalogue.entries):
        if entry.code.number == number:
            found = Classified(entry.code, entry.reason)
            return _by_policy(found, entry.code.text, idempotent, attempt, policy, random)
    for own in OUR_OWN:
        if own.number == number:
            return _by_policy(Classified(own, UNKNOWN), own.text, idempotent, attempt, policy, random)
    reason = SERVICE_RESPONSE_CODE_INDICATED if error_class is ErrorClass.RETRIABLE else UNKNOWN
    found = Classified(ErrorCode(number, "?", "by its range"), reason)
    return _by_policy(
        found, "no catalogue has it, so its range alone says what it is", idempotent, attempt, policy, random
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
    """What becomes of an answer of Couchbase, under the best effort strategy."""
    found = couchbase.response(service, status, operation=operation, text=text, error_map_retry=error_map_retry)
    if found.reason is UNKNOWN:
        told = "the answer is not in the list of those that are tried again"
        return _answered(found, told, None)
    return _best_effort(found, idempotent, attempt)


def explain_reason(name: str, *, idempotent: bool = False, attempt: int = 0) -> ErrorExplanation:
    """What becomes of a call that failed for this reason, under the best effort strategy. Raises InputError."""
    reason = reason_of(name)
    code = GENERIC_ERROR if reason is UNKNOWN else ErrorCode(20000, reason.name, reason.meaning)
    return _best_effort(Classified(code, reason), idempotent, attempt)


def _best_effort(found: Classified, idempotent: bool, attempt: int) -> ErrorExplanation:
    attempt = _attempt(attempt)
    reason = found.reason
    if reason.always_retry:
        return _answered(
            found, f"{reason.meaning}; it is always retried, by the controlled back-off", controlled_backoff(attempt)
        )
    if reason is UNKNOWN:
        return _answered(found, reason.meaning, None)
    if idempotent or reason.allows_non_idempotent_retry:
        return _answered(found, f"{reason.meaning}; best effort tries again", exponential(attempt))
    return _answered(found, f"{reason.meaning}; it is not idempotent, so it may not be sent again", None)


def _by_policy(
    found: Classified, told: str, idempotent: bool, attempt: int, policy: Backoff, random: Random | None
) -> ErrorExplanation:
    attempt = _attempt(attempt)
    if not found.is_retriable:
        return _answered(found, f"{told}; waiting does not help", None)
    if not (idempotent or found.reason.allows_non_idempotent_retry or found.reason.always_retry):
        return _answered(found, f"{told}; {found.reason.meaning}, and it is not idempotent", None)
    delay = max(policy.delay(attempt, random or Random()), found.retry_after or 0.0)
    return _answered(found, f"{told}; it is tried again by the policy", delay)


def _answered(found: Classified, why: str, delay: float | None) -> ErrorExplanation:
    reason = found.reason
    return ErrorExplanation(
        reason=reason.name,
        allows_non_idempotent_retry=reason.allows_non_idempotent_retry,
        always_retry=reason.always_retry,
        code=found.code.number,
        error_class=found.code.error_class.value,
        retry=delay is not None,
        delay_seconds=delay,
        why=why,
    )


def _attempt(attempt: int) -> int:
    if attempt < 0:
        raise InputError(f"attempt {attempt}: must be the number of retries before this one, from 0 on")
    return attempt


def _types(name: str) -> tuple[str, ...]:
    """The full names of a class and its superclasses."""
    module, _, attribute = name.rpartition(".")
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise InputError(f"{given.shown(name)} is not the name of an error class; give it as 'package.module.Name'")
    found: object = getattr(builtins, name, None) if not module else None
    if module:
        try:
            found = getattr(importlib.import_module(module), attribute, None)
        except ImportError:
            return (name,)
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise InputError(f"{given.shown(name)} is not an error class that is there; give it as 'package.module.Name'")
    return tuple(f"{one.__module__}.{one.__qualname__}" for one in found.__mro__[:-1])
