"""The Decision record: the state and outcome of a task, and its retries, losses and refusals."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import IntEnum
from functools import cache
from typing import Any, ClassVar

from recovery.records import ids
from recovery.records.codec import field_name
from recovery.records.ids import ActorName
from recovery.records.record import DecisionState, OfTask, Record, Trace
from recovery.records.task import Call, Child, Task

ABORTED = "Aborted"
"""Kind of the error that an aborted process and its unfinished tasks end with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo(Record):
    """Why a task, or a process, has no value."""

    kind: str
    """Name of the error's type."""
    message: str
    """Up to 500 characters."""
    code: int | None = None
    """The error's code in a catalogue of `retry`; 40000 if no catalogue knows it. Absent if no exception was raised."""
    exhausted: int | None = None
    """The code whose retries exceeded their total duration. `code` is then RETRIES_EXHAUSTED, which is not retried."""
    reason: str | None = None
    """The name of the error's reason, one of `retry.REASONS`."""
    no_retry: str | None = None
    """Why the task was not retried, in a few words."""
    task: str | None = None
    actor: str | None = None
    stack: str | None = None
    fingerprint: str | None = None
    """A hash that similar errors share; see `failure.fingerprint`."""

    @property
    def first_code(self) -> int | None:
        """Return the code of the error itself, even if its retries are exhausted."""
        return self.code if self.exhausted is None else self.exhausted


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Record):
    """How a task ended: a value or an error, and the pass of the attempt whose result was accepted."""

    pass_key: str
    finished_at: datetime | None = None
    value: str | None = None
    waits: tuple[str, ...] = ()
    """Children whose promises the value contains. Tasks that wait for this task also wait for these children."""
    error: ErrorInfo | None = None
    trace: Trace | None = None
    """The attempt's span, the parent of its children's spans. Absent if the decision's `trace` is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryCycle(Record):
    """The retries for an earlier error code of a task. If that code occurs again, its cycle resumes."""

    code: int
    retries: int
    since: datetime
    """The first failure of the cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryState(Record):
    """The retries of a task. Written together with the state `delayed`, so that a crash neither loses nor repeats a
    retry."""

    count: int
    """All retries of the task, including the next one."""
    cycle: int
    """Retries in the current cycle, including the next one. A cycle counts one error code; a new code starts a new
    cycle."""
    since: datetime
    """The first failure of the cycle."""
    until: datetime
    """No retry of this cycle begins after this moment."""
    failed_at: datetime
    """The last failure."""
    attempt: int
    """The number of the attempt that failed last, as counted by the decision's `attempts`."""
    pass_key: str
    """The pass of that attempt, by which the attempt recognizes its own write."""
    code: int
    reason: str
    kind: str
    """Name of the error's type."""
    message: str
    """Up to 500 characters."""
    reasons: tuple[str, ...] = ()
    """Names of the reasons of all retries so far."""
    cycles: tuple[RetryCycle, ...] = ()
    """The cycles of the task's earlier codes, oldest first; at most `retry.attempts.CODES`. Absent in records of older
    versions, which did not keep them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostAttempt(Record):
    """How the pool process of a lost attempt ended, as its parent process saw it."""

    attempt: int
    """The attempt's number, as counted by the decision's `attempts`."""
    how: str
    """For example 'was ended by signal 9 (SIGKILL)' or 'ended with exit code 3'."""


PINNED = "does not run it: the task is pinned to another version"
"""The reason of a worker that refuses a task pinned to a version with which its code is not compatible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRefusal(Record):
    """A version of the application that refused a task: its code does not accept the task's call, or the task is pinned
    to another version."""

    version: str
    since: datetime
    """When a worker of this version first refused the task."""
    why: str
    """For example "got an unexpected keyword argument 'currency'"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Record):
    """Consecutive refusals of a task by workers of the wrong version. A refusal does not count as an attempt."""

    count: int
    attempts: int
    """The decision's `attempts` at the last refusal, without the refused claim."""
    pass_key: str
    """The pass of the claim that was refused last, by which the worker recognizes its own write."""
    by: tuple[VersionRefusal, ...] = ()
    """One entry per version that refused the task; the version that refused it last comes last."""


class Until(IntEnum):
    """The event that resets a field of a decision. Each event also resets the fields of the events with lower
    values."""

    NEXT_ATTEMPT = 1
    """The task is queued again."""
    NEXT_LIFE = 2
    """An operator restarts the failed task."""
    NEXT_EPOCH = 3
    """The task runs again in a new epoch of its process."""


def lasts(until: Until, default: Any = None) -> Any:
    """Return a dataclass field that is reset to its default by this event."""
    return field(default=default, metadata={"until": until})


# Without slots, because scanners read a thousand decisions at once: without slots, the codec can build a decision from
# the few fields that its document has (`from_document`).
@dataclass(frozen=True, kw_only=True)
class Decision(OfTask):
    """The state and outcome of a task."""

    ALWAYS_WRITTEN: ClassVar = frozenset({"state", "epoch"})

    id: str
    actor: ActorName
    state: DecisionState = DecisionState.WAITING
    epoch: ids.Epoch = 0
    pass_key: str | None = lasts(Until.NEXT_EPOCH)
    attempts: int = lasts(Until.NEXT_EPOCH, 0)
    timeouts: int = lasts(Until.NEXT_LIFE, 0)
    """Consecutive lost attempts since the last attempt that ended or the last restart of the task. Losses in a batch or
    with a whole worker are not counted here."""
    workers_lost: int | None = lasts(Until.NEXT_LIFE)
    """Consecutive attempts that were lost with their whole workers, which `timeouts` does not count; absent if none."""
    losses: int | None = lasts(Until.NEXT_EPOCH)
    """How often the task was requeued because its message was lost; absent if never."""
    lost_attempt: LostAttempt | None = lasts(Until.NEXT_LIFE)
    """The last lost attempt whose end was seen. Usually absent; always absent if the whole machine was lost."""
    in_batch: bool | None = lasts(Until.NEXT_ATTEMPT)
    """Claimed in a batch, whose tasks run one after another. While the task is `working`, it may not have begun."""
    fresh: bool | None = None
    """Created by a start and never claimed. Before the task is queued, its process must be seen in MongoDB. Otherwise
    the task is removed."""
    alone: bool | None = lasts(Until.NEXT_LIFE)
    """The task is claimed without others from now on, because its slot was lost with a batch and nobody knows which
    task of the batch was running."""
    restarts: int | None = lasts(Until.NEXT_EPOCH)
    """How often an operator restarted the task; absent if never. Results from before the last restart are stale."""
    fallible: bool | None = None
    """True: an error of the task does not break the process. Stored outside of `call`, because the decisions of large
    tasks have no `call`."""
    call: Call | None = None
    eta: datetime | None = None
    """The task starts no earlier than this moment: its scheduled time, or the time of its next retry."""
    delay: float | None = None
    """Seconds to wait once the task is ready."""
    enqueued_at: datetime | None = lasts(Until.NEXT_EPOCH)
    """When the task was first queued, from which its task_timeout counts. `queued_at` is when it was last queued."""
    queued_at: datetime | None = lasts(Until.NEXT_EPOCH)
    claimed_at: datetime | None = lasts(Until.NEXT_EPOCH)
    pinned_to: str | None = None
    """The version of the application that must run the task, or a version that declares itself compatible. Absent if
    any version may."""
    worker: str | None = lasts(Until.NEXT_ATTEMPT)
    """The holder of the claim, or of the attempt that finished the task; see `ids.holder`."""
    version: str | None = lasts(Until.NEXT_EPOCH)
    """The version of the application that ran the last attempt, or the attempt whose result was accepted. Absent in
    records of library versions that did not record it."""
    retry: RetryState | None = lasts(Until.NEXT_LIFE)
    """Absent until the task is retried after an error."""
    refused: Refused | None = lasts(Until.NEXT_LIFE)
    """Absent unless workers refused the task. `waits_for_newer_worker` tells whether the task still waits."""
    outcome: Outcome | None = lasts(Until.NEXT_LIFE)
    children: tuple[Child, ...] = lasts(Until.NEXT_LIFE, ())
    """The tasks that this task scheduled, with all data that their records need."""
    trace: Trace | None = None
    """The parent span of the task's attempts: the span of the attempt that scheduled the task, or of the process's
    start. Absent without tracing."""
    recovery_time: datetime | None = lasts(Until.NEXT_EPOCH)
    paced_to: datetime | None = None
    """The deadline that the actor's `requeue_rate` has set. While `recovery_time` is the same, the task waits for its
    turn and its deadline is not advanced."""

    def task(self) -> Task | None:
        """Return the Task record, or None if this decision has no copy of its call."""
        if self.call is None:
            return None
        call = self.call
        return Task(
            id=self.id,
            actor=self.actor,
            args=call.args,
            parent=call.parent,
            epoch=self.epoch,
            deps=call.deps,
            dependents=call.dependents,
            unlocks=call.unlocks,
            fallible=self.fallible,
        )

    @property
    def is_paced(self) -> bool:
        """Return whether the current deadline was set by the actor's `requeue_rate`."""
        return self.paced_to is not None and self.paced_to == self.recovery_time

    @property
    def waits_for_newer_worker(self) -> bool:
        """Return whether a worker of the wrong version refused the task and no attempt has begun since."""
        # An attempt that begins removes `refused`.
        return self.refused is not None and self.state in (DecisionState.DELAYED, DecisionState.QUEUED)

    @property
    def waits_for_pinned_version(self) -> bool:
        """Return whether the task waits because the last worker that refused it is not of the pinned version."""
        last = self.refused.by[-1] if self.refused is not None and self.refused.by else None
        return self.waits_for_newer_worker and last is not None and last.why == PINNED

    @property
    def last_loss(self) -> str | None:
        """Return how the pool process of the last attempt ended; None if the last attempt was not seen to be lost."""
        lost = self.lost_attempt
        return lost.how if lost is not None and lost.attempt == self.attempts else None

    @property
    def effects_trace(self) -> Trace | None:
        """Return the parent span of all that follows from the finished task: its attempt's span, or else its own
        parent."""
        return (self.outcome.trace if self.outcome is not None else None) or self.trace

    @property
    def failed(self) -> bool:
        """Return whether the task ended with an error that breaks its process. The error of a fallible task is its
        value and breaks nothing."""
        return self.outcome is not None and self.outcome.error is not None and not self.fallible


@cache
def forgotten(until: Until) -> tuple[str, ...]:
    """Return the stored names of the fields that this event removes from a decision; see `reset` for its counts."""
    return tuple(
        field_name(dataclass_field.name)
        for dataclass_field in _ending(until)
        if dataclass_field.default is None or dataclass_field.default == ()
    )


@cache
def reset(until: Until) -> dict[str, int]:
    """Return {stored name: default} of the counts that this event resets."""
    return {
        field_name(dataclass_field.name): dataclass_field.default
        for dataclass_field in _ending(until)
        if isinstance(dataclass_field.default, int)
    }


def _ending(until: Until) -> list[Any]:
    """Return the dataclass fields that this event resets."""
    return [
        dataclass_field
        for dataclass_field in fields(Decision)
        if dataclass_field.metadata.get("until", until + 1) <= until
    ]
