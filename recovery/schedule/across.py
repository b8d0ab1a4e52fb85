"""Retry across instances: what the end of the previous instance means for later instances.

This is Hive's 'Retry across instances'. A schedule stores with which code its instances fail, and since when. A failure
is non-recoverable if the same code continues for longer than `retry_across` (which is recommended) or more often than
`retry_across_count`, or if its code is not retriable. Another code or a success begins anew. If neither setting is
given, a failure is non-recoverable only if the instance left a marker, as its type decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.errors import InputError
from recovery.records import ErrorInfo, Process, ProcessState, marker_name
from recovery.records.schedule import Disabled, Failing, Plan, Schedule
from recovery.retry.codes import GENERIC_ERROR, ErrorClass, class_of
from recovery.wording import show_duration


@dataclass(frozen=True, slots=True)
class Account:
    """The result of judging the end of the previous instance."""

    failing: Failing | None
    disabled: Disabled | None = None
    """Why the schedule is disabled; None unless the failure is non-recoverable."""


def is_set(plan: Plan) -> bool:
    """Return whether a plan limits for how long, or how often, instances may fail."""
    return bool(plan.retry_across or plan.retry_across_count)


def code_of(error: ErrorInfo | None) -> int:
    """Return the code of a process's original error, even after exhausted retries; without one, the generic code."""
    code = None if error is None else error.first_code
    return GENERIC_ERROR.number if code is None else code


def is_retriable(code: int) -> bool:
    """Return whether the code is in the retriable range."""
    try:
        return class_of(code) is ErrorClass.RETRIABLE
    except InputError:  # another version or another program wrote the code
        return False


def account(schedule: Schedule, previous: Process, now: datetime, marker: str | None = None) -> Account | None:
    """Judge the end of the previous instance.

    Args:
        schedule: The schedule.
        previous: The process of the previous instance.
        now: The time.
        marker: The name of the marker that the instance left. With a marker its failure is non-recoverable in any case.

    Returns:
        The result; None if the instance still runs, or was judged before.
    """
    if previous.state is ProcessState.RUNNING or previous.id == schedule.accounted:
        return None
    if previous.state is ProcessState.FINISHED:
        return Account(None)
    if previous.state is ProcessState.ABORTED:  # an operator's decision is neither a success nor a failure
        return Account(schedule.failing)
    code, ended = code_of(previous.error), previous.ended_at or now
    earlier = schedule.failing
    if earlier is None or earlier.code != code:
        failing = Failing(code=code, since=ended, process=previous.id)
    else:
        failing = earlier.evolve(count=earlier.count + 1, process=previous.id)
    plan = schedule.plan
    reason = _non_recoverable_reason(plan, failing, ended) if is_set(plan) else None
    if reason is None and marker is not None:
        reason = f"failed with the code {code}, for good"
    if reason is None:
        return Account(failing)
    name = marker_name(previous.type, previous.key)
    return Account(failing, Disabled(process=previous.id, code=code, reason=reason, at=now, marker=name))


def _non_recoverable_reason(plan: Plan, failing: Failing, ended: datetime) -> str | None:
    """Return why a failure is non-recoverable; None if it is recoverable."""
    if not is_retriable(failing.code):
        return f"failed with the code {failing.code}, which is not retriable"
    if plan.retry_across and ended - failing.since >= timedelta(seconds=plan.retry_across):
        duration = show_duration(round((ended - failing.since).total_seconds()))
        allowed = show_duration(plan.retry_across)
        return f"failed with the code {failing.code} for {duration}; retry_across allows {allowed}"
    if plan.retry_across_count and failing.count >= plan.retry_across_count:
        return (
            f"failed with the code {failing.code} {failing.count} times in a row; retry_across_count allows "
            f"{plan.retry_across_count}"
        )
    return None
