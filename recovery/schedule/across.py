"""Retry across instances: what the end of the previous instance means for those to come.

Hive's replication retry, 'Retry across instances': a schedule remembers with which code its instances fail and since
when. The same code for longer than allowed (`retry_across`, by time, which is recommended; or `retry_across_count`)
makes the last failure non-recoverable, as does a code that is not retriable; another code or a success begins anew.
Where neither is set an instance is non-recoverable if it left a marker, which is its type's own affair.
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
    """What is known once the end of the previous instance was looked at."""

    failing: Failing | None
    disabled: Disabled | None = None
    """Set where its failure is non-recoverable."""


def is_set(plan: Plan) -> bool:
    """Whether a plan says for how long instances may fail."""
    return bool(plan.retry_across or plan.retry_across_count)


def code_of(error: ErrorInfo | None) -> int:
    """Return the code of a process's fault, also if the retries of the instance are exhausted; without one, the generic
    code."""
    code = None if error is None else error.first_code
    return GENERIC_ERROR.number if code is None else code


def is_retriable(code: int) -> bool:
    """Whether waiting may cure it, by its range."""
    try:
        return class_of(code) is ErrorClass.RETRIABLE
    except InputError:  # of another version, or of another program
        return False


def account(schedule: Schedule, previous: Process, now: datetime, marker: str | None = None) -> Account | None:
    """What the end of the previous instance means; None while it runs, or if it was looked at already. `marker` is the
    name of the one that it left: then it is non-recoverable whatever the plan says."""
    if previous.state is ProcessState.RUNNING or previous.id == schedule.accounted:
        return None
    if previous.state is ProcessState.FINISHED:
        return Account(None)
    if previous.state is ProcessState.ABORTED:  # an operator's word, which is neither
        return Account(schedule.failing)
    code, ended = code_of(previous.error), previous.ended_at or now
    before = schedule.failing
    if before is None or before.code != code:
        failing = Failing(code=code, since=ended, process=previous.id)
    else:
        failing = before.evolve(count=before.count + 1, process=previous.id)
    plan = schedule.plan
    reason = _why(plan, failing, ended) if is_set(plan) else None
    if reason is None and marker is not None:
        reason = f"failed with the code {code}, for good"
    if reason is None:
        return Account(failing)
    name = marker_name(previous.type, previous.key)
    return Account(failing, Disabled(process=previous.id, code=code, reason=reason, at=now, marker=name))


def _why(plan: Plan, failing: Failing, ended: datetime) -> str | None:
    """Why a failure is non-recoverable; None while it is not."""
    if not is_retriable(failing.code):
        return f"failed with the code {failing.code}, which is not retriable"
    if plan.retry_across and ended - failing.since >= timedelta(seconds=plan.retry_across):
        for_so_long = show_duration(round((ended - failing.since).total_seconds()))
        allowed = show_duration(plan.retry_across)
        return f"failed with the code {failing.code} for {for_so_long}; retry_across allows {allowed}"
    if plan.retry_across_count and failing.count >= plan.retry_across_count:
        return (
            f"failed with the code {failing.code} {failing.count} times in a row; retry_across_count allows "
            f"{plan.retry_across_count}"
        )
    return None
