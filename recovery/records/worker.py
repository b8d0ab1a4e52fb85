"""What workers and other programs report of themselves: the Worker, QueueStatistics, ScannerRun, Census and LeftCounts
records. `ScannerRun` tells apart that nobody nudges scanners and that they cannot keep up."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from recovery.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class HungSlot(Record):
    """A slot whose attempt goes on past its time, without its claim."""

    actor: str
    task: str
    """Id of its decision, `P/T`."""
    since: datetime
    """When its function was called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingSlots(Record):
    """Slots of a worker that claimed tasks and could run none, for a reason that is no task's."""

    in_a_row: int
    """How many were replaced for that since a task was last done there."""
    reason: str
    """What the last task failed for that could not be run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedSlots(Record):
    """Slots that were freed of attempts that hung, of one actor: `id` is its name."""

    id: str
    slots: int
    """How many ever were."""
    at: datetime
    """When the last one was; `worker` and `task` are that one's."""
    worker: str
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedWrite(Record):
    """A write that a condition rejected, the latest of a step of one actor: `id` is its name."""

    id: str
    step: str
    """`claim`, `finish`, `apply`, `interrupt` or `repair`."""
    guard: str
    """What was another than the write expected: see `engine.rejections.Guard`."""
    record: str
    """`P/T` of a decision, `P` of a graph."""
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics(Record):
    """What workers tell of a queue: when they polled it last, and how old the last message taken was.

    Messages of a queue are taken in the order they were pushed, so a message pushed well before the last
    one taken is in a worker's hands or lost.
    """

    id: str
    polled_at: datetime | None = None
    taken_queued_at: datetime | None = None
    """`queuedAt` of the youngest message taken so far."""
    found_empty_at: datetime | None = None
    """When the queue was empty, so long ago that what had been pushed before is claimed or lost."""
    seen_empty_at: datetime | None = None
    """When it was last seen to be empty, perhaps just now: what was pushed before may be in a worker's hands."""
    lost_before: datetime | None = None
    """When Redis was found to have lost all of its data: so is the message of what was queued before. 1970 where it was
    looked at, and had lost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker(Record):
    """A worker that lives, or did at its last heartbeat. Its id is new at every start.

    `host` names the kernel and the process namespace, so a worker of the same `host` can tell by `pid` and
    `pid_started` that this one is gone, without waiting for its deadline.
    """

    id: str
    name: str
    host: str
    pid: int
    pid_started: int
    queues: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()
    """Those of its queues that it does not consume now, since their actors are blocked."""
    polls: tuple[QueueStatistics, ...] = ()
    """What it knows of the queues that it polls, or has polled."""
    spark: bool | None = None
    """Whether it drives Spark: it takes operations that are left to it."""
    hung: tuple[HungSlot, ...] = ()
    """Of its slots those that hang, for as long as they are not freed."""
    failing: FailingSlots | None = None
    """Of its slots those that claim tasks and run none, while there are some."""
    version: str | None = None
    """Of the library that it runs. Absent of versions that did not tell."""
    application: str | None = None
    """The name of the application that it serves. Absent of versions that did not tell."""
    application_version: str | None = None
    """The version of that application. Absent of versions of the library that did not record it: such a worker counts
    as a version of its own."""
    compatible_with: tuple[str, ...] = ()
    """The versions to which tasks may be pinned that it runs as well."""
    drill_kill: bool | None = None
    """Whether a drill may have it killed, or a process of its pool; absent if not."""
    clock_ahead: float | None = None
    """Seconds by which its machine's clock is ahead of MongoDB's, as it saw with its last heartbeat. Absent of versions
    that did not tell."""
    started_at: datetime | None = None
    recovery_time: datetime | None = None

    def may_run(self, pinned_to: str) -> bool:
        """Whether it runs tasks that are pinned to this version."""
        return pinned_to == self.application_version or pinned_to in self.compatible_with


def is_same_deadline(one: Any, other: Any) -> bool:
    """Whether a worker's deadline, as it stands in its record, did not change: it did not beat. Of what is no date, and
    so no worker's, all is the same."""
    return one == other if isinstance(one, datetime) else not isinstance(other, datetime)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerRun(Record):
    """The last run of a scanner in the whole cluster. `id` is the scanner's name.

    `seconds` is of that run; `looked_at` and `repaired` count what its worker did since it last told.
    """

    id: str
    ran_at: datetime | None = None
    nudged_at: datetime | None = None
    """When a worker last took a beat's nudge, as far as is known. Without one, workers scan more seldom."""
    seconds: float = 0.0
    looked_at: int = 0
    repaired: int = 0
    worker: str | None = None
    error: str | None = None
    """Why the run was cut off."""
    lost: tuple[str, ...] = ()
    """Of the scanner of workers: names of those that it found silent last, and forgot."""
    lost_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusLine(Record):
    """So many processes of a type are in this state."""

    type: str
    state: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Census(Record):
    """What was counted last of what is live or broken, for the whole cluster. There is one."""

    id: str
    taken_at: datetime | None = None
    """Absent while the first one is taken."""
    next_at: datetime | None = None
    """When somebody may take the next one."""
    seconds: float = 0.0
    processes: tuple[CensusLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Record):
    """By how much a counter grew, or one bucket of a histogram, with these labels."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftCounts(Record):
    """What a program counted that nobody scrapes, left for a worker to add to its own."""

    id: str
    at: datetime | None = None
    samples: tuple[Sample, ...] = ()
