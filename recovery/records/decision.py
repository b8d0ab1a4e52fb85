"""What came of a task: the Decision record, with its outcome or error, and how far its retries have come."""

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
"""Kind of the error that an aborted process, and its tasks that were not finished, end with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo(Record):
    """Why a task, or a process, has no value."""

    kind: str
    """Name of the error's type."""
    message: str
    """Up to 500 characters."""
    code: int | None = None
    """What it is by a catalogue of `retry`; 40000 is what none knows. Absent of what no exception was raised for."""
    exhausted: int | None = None
    """The code whose total duration of retries is over. `code` is then RETRIES_EXHAUSTED, which is not retriable."""
    reason: str | None = None
    """The name of its reason, one of `retry.REASONS`."""
    no_retry: str | None = None
    """Why it was not tried again, in a few words."""
    task: str | None = None
    actor: str | None = None
    stack: str | None = None
    fingerprint: str | None = None
    """What alike errors have in common; see `failure.fingerprint`."""

    @property
    def first_code(self) -> int | None:
        """The code of the fault itself, also if its retries are exhausted."""
        return self.code if self.exhausted is None else self.exhausted


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Record):
    """How a task ended: a value or an error, and the pass of the attempt whose result was accepted."""

    pass_key: str
    finished_at: datetime | None = None
    value: str | None = None
    waits: tuple[str, ...] = ()
    """Children that the value still promises; who waits for this task waits for them."""
    error: ErrorInfo | None = None
    trace: Trace | None = None
    """The attempt's span, which its children come under; absent where the decision's own says all that there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryCycle(Record):
    """The retries for an error that a task had before the one that it has now: if that code comes back, it goes on."""

    code: int
    retries: int
    since: datetime
    """The first failure of the cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryState(Record):
    """The retries of a task: written with the state `delayed`, so that a crash neither forgets nor repeats one."""

    count: int
    """Retries of the task in all, the next one included."""
    cycle: int
    """The same since the error it has now came first: a code that the task has not had starts a new cycle."""
    since: datetime
    """The first failure of the cycle."""
    until: datetime
    """No retry of this cycle begins after it."""
    failed_at: datetime
    """The last failure."""
    attempt: int
    """The attempt that failed last, by the decision's `attempts`."""
    pass_key: str
    """Its pass: by it that attempt knows its own write again."""
    code: int
    reason: str
    kind: str
    """Name of the error's type."""
    message: str
    """Up to 500 characters."""
    reasons: tuple[str, ...] = ()
    """Names of the reasons of all retries so far."""
    cycles: tuple[RetryCycle, ...] = ()
    """The cycles of other codes that the task has had, the oldest first; at most `retry.attempts.CODES`. Absent in the
    records of older versions, which forgot them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostAttempt(Record):
    """How the process of an attempt that was lost had ended, as its parent saw."""

    attempt: int
    """Which it was, by the decision's `attempts`."""
    how: str
    """As in 'was ended by signal 9 (SIGKILL)', 'ended with exit code 3'."""


PINNED = "does not run it: the task is pinned to another version"
"""Why a worker refuses a task that is pinned to a version with which its code is not compatible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRefusal(Record):
    """A version of the application whose code does not accept the call of a task, or that a task is not pinned to."""

    version: str
    since: datetime
    """When a worker of this version first refused the task."""
    why: str
    """As in "got an unexpected keyword argument 'currency'"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Record):
    """Refusals of a task, in a row, by workers whose code does not accept its call. None of them is an attempt."""

    count: int
    attempts: int
    """The decision's `attempts` when the task was refused last, without that claim."""
    pass_key: str
    """The pass of the claim that was refused last: by it the worker knows its own write again."""
    by: tuple[VersionRefusal, ...] = ()
    """One for each version that refused the task; the version that refused it last is the last."""


class Until(IntEnum):
    """How long what a field of a decision says holds. What ends later forgets what ends sooner as well."""

    NEXT_ATTEMPT = 1
    """Until the task is queued again."""
    NEXT_LIFE = 2
    """Until an operator restarts it."""
    NEXT_EPOCH = 3
    """Until it is done again."""


def lasts(until: Until, default: Any = None) -> Any:
    """A field whose value is its default again from then on."""
    return field(default=default, metadata={"until": until})


# Without slots: a thousand are read at once, and the codec makes one with the few fields that it has (`from_document`).
@dataclass(frozen=True, kw_only=True)
class Decision(OfTask):
    """How far a task is, and what came of it."""

    ALWAYS_WRITTEN: ClassVar = frozenset({"state", "epoch"})

    id: str
    actor: ActorName
    state: DecisionState = DecisionState.WAITING
    epoch: ids.Epoch = 0
    pass_key: str | None = lasts(Until.NEXT_EPOCH)
    attempts: int = lasts(Until.NEXT_EPOCH, 0)
    timeouts: int = lasts(Until.NEXT_LIFE, 0)
    """Attempts that were lost in a row: since one ended, or the task was restarted."""
    workers_lost: int | None = lasts(Until.NEXT_LIFE)
    """Attempts in a row that were lost with their whole workers, which count as no timeout; absent if none."""
    losses: int | None = lasts(Until.NEXT_EPOCH)
    """How often its message was lost and it was queued again for that; absent if never."""
    lost_attempt: LostAttempt | None = lasts(Until.NEXT_LIFE)
    """The last one of which that is known; absent mostly. Of a machine that is gone nobody knows."""
    in_batch: bool | None = lasts(Until.NEXT_ATTEMPT)
    """Claimed with others, to be run one after the other: while it is working, whether it has begun is not known."""
    fresh: bool | None = None
    """Made by a start, and never claimed: whoever queues it has to know that its process is there, or removes it."""
    alone: bool | None = lasts(Until.NEXT_LIFE)
    """Its holder was lost with a batch of which it was a part, and nobody knows which of them ran: from then on it is
    claimed by itself, so that it is known the next time."""
    restarts: int | None = lasts(Until.NEXT_EPOCH)
    """How often an operator restarted the task; absent if never. What was decided before the last time is stale."""
    fallible: bool | None = None
    """The task's, and not in `call`: of a large task too it must be known whether its error breaks the process."""
    call: Call | None = None
    eta: datetime | None = None
    """Not before this moment: as it was scheduled, or until its next retry."""
    delay: float | None = None
    enqueued_at: datetime | None = lasts(Until.NEXT_EPOCH)
    """When it was first queued: what its task_timeout counts from. `queued_at` is when it was last."""
    queued_at: datetime | None = lasts(Until.NEXT_EPOCH)
    claimed_at: datetime | None = lasts(Until.NEXT_EPOCH)
    pinned_to: str | None = None
    """The version of the application that alone runs it, or one that declares itself compatible; absent if any may."""
    worker: str | None = lasts(Until.NEXT_ATTEMPT)
    version: str | None = lasts(Until.NEXT_EPOCH)
    """The version of the application that ran the last attempt, or the one whose result was accepted. Absent of
    versions of the library that did not record it."""
    retry: RetryState | None = lasts(Until.NEXT_LIFE)
    """Absent until it is tried again for an error."""
    refused: Refused | None = lasts(Until.NEXT_LIFE)
    """Absent unless a worker's code did not accept its call. `waits_for_newer_worker` says whether it still waits."""
    outcome: Outcome | None = lasts(Until.NEXT_LIFE)
    children: tuple[Child, ...] = lasts(Until.NEXT_LIFE, ())
    trace: Trace | None = None
    """The span that its attempts come under: of the attempt that scheduled it, or of its process's start. Absent where
    nobody traces."""
    recovery_time: datetime | None = lasts(Until.NEXT_EPOCH)
    paced_to: datetime | None = None
    """The deadline that its actor's pace has set, while it stands: it has its turn then, and is not to be looked at
    sooner."""

    def task(self) -> Task | None:
        """The Task record, if this decision has a copy of its call."""
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
        """Whether its deadline is that of its actor's pace, and none that was set since."""
        return self.paced_to is not None and self.paced_to == self.recovery_time

    @property
    def waits_for_newer_worker(self) -> bool:
        """Whether the task was given back by a worker whose code does not accept its call, and was not begun since."""
        # An attempt that begins removes the refusals.
        return self.refused is not None and self.state in (DecisionState.DELAYED, DecisionState.QUEUED)

    @property
    def waits_for_pinned_version(self) -> bool:
        """Whether the task was given back last because the worker's code is of another version than it is pinned to."""
        last = self.refused.by[-1] if self.refused is not None and self.refused.by else None
        return self.waits_for_newer_worker and last is not None and last.why == PINNED

    @property
    def last_loss(self) -> str | None:
        """How the process of its last attempt had ended, if that was seen."""
        lost = self.lost_attempt
        return lost.how if lost is not None and lost.attempt == self.attempts else None

    @property
    def effects_trace(self) -> Trace | None:
        """The span that what it brings about comes under, once it is finished."""
        return (self.outcome.trace if self.outcome is not None else None) or self.trace

    @property
    def failed(self) -> bool:
        """Whether it ended with an error that breaks its process: a fallible task's is its value."""
        return self.outcome is not None and self.outcome.error is not None and not self.fallible


@cache
def forgotten(until: Until) -> tuple[str, ...]:
    """Return the stored names of what a decision no longer has from then on; see `reset` for its counts."""
    return tuple(field_name(one.name) for one in _ending(until) if one.default is None or one.default == ())


@cache
def reset(until: Until) -> dict[str, int]:
    """Return the counts that begin anew then, by their stored names."""
    return {field_name(one.name): one.default for one in _ending(until) if isinstance(one.default, int)}


def _ending(until: Until) -> list[Any]:
    return [one for one in fields(Decision) if one.metadata.get("until", until + 1) <= until]
