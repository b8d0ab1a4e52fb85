"""Records in which workers and commands report on themselves: Worker, QueueStatistics, ScannerRun, Census and
LeftCounts. `ScannerRun` shows whether nobody nudges the scanners or whether they cannot keep up."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from recovery.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class HungSlot(Record):
    """A slot whose attempt still runs although its claim has expired."""

    actor: str
    task: str
    """Id of the task's decision, `P/T`."""
    since: datetime
    """When the attempt's function was called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingSlots(Record):
    """A report that slots of a worker claim tasks but cannot run them, for a reason that is not the tasks' fault."""

    in_a_row: int
    """Number of slots that were replaced for this reason since the worker last ran a task."""
    reason: str
    """The error with which the last task could not be run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedSlots(Record):
    """The slots that were freed from hung attempts of one actor, whose name is `id`."""

    id: str
    slots: int
    """Number of all slots that were ever freed."""
    at: datetime
    """When the last slot was freed. `worker` and `task` belong to that slot."""
    worker: str
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedWrite(Record):
    """The latest write of one step of an actor that a condition rejected. `id` is the actor's name."""

    id: str
    step: str
    """`claim`, `finish`, `apply`, `interrupt` or `repair`."""
    guard: str
    """The condition that was not met; see `engine.rejections.Guard`."""
    record: str
    """`P/T` of a decision, `P` of a graph."""
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics(Record):
    """What workers know of a queue: when it was last polled, and how old the last message was that a worker took.

    Workers take the messages of a queue in the order in which they were pushed. Therefore a message that was pushed
    well before the last one taken has been received by a worker or is lost.
    """

    id: str
    polled_at: datetime | None = None
    taken_queued_at: datetime | None = None
    """The `queuedAt` of the youngest message taken so far."""
    found_empty_at: datetime | None = None
    """When the queue was seen empty, long enough ago that all tasks whose messages were pushed before are claimed or
    their messages lost."""
    seen_empty_at: datetime | None = None
    """When the queue was last seen empty. If that was just now, a worker may hold messages that were pushed before and
    not have claimed their tasks yet."""
    lost_before: datetime | None = None
    """When Redis was last found to have lost all of its data. Messages that were pushed before are lost. 1970 if Redis
    was checked and had lost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker(Record):
    """A worker that was alive at its last heartbeat. A worker gets a new id at every start.

    `host` names the kernel and the process namespace. Another worker of the same `host` can detect from `pid` and
    `pid_started` that this worker is gone, without waiting for its deadline.
    """

    id: str
    name: str
    host: str
    pid: int
    pid_started: int
    queues: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()
    """The queues that the worker does not consume now, because their actors are blocked."""
    polls: tuple[QueueStatistics, ...] = ()
    """What the worker knows of the queues that it polls or has polled."""
    spark: bool | None = None
    """Whether the worker drives Spark, so that it runs operations that need Spark."""
    hung: tuple[HungSlot, ...] = ()
    """The hung slots that are not freed yet."""
    failing: FailingSlots | None = None
    """Present while slots claim tasks but cannot run them."""
    version: str | None = None
    """The version of the library that the worker runs. Absent in records of versions that did not record it."""
    application: str | None = None
    """The name of the application that the worker serves. Absent in records of versions that did not record it."""
    application_version: str | None = None
    """The version of that application. Absent in records of library versions that did not record it; such a worker
    counts as a separate version."""
    compatible_with: tuple[str, ...] = ()
    """Other versions whose pinned tasks the worker runs, too."""
    drill_kill: bool | None = None
    """Whether a drill may kill the worker or a process of its pool; absent if not."""
    clock_ahead: float | None = None
    """Seconds by which the clock of the worker's machine was ahead of MongoDB's at the last heartbeat. Absent in
    records of versions that did not record it."""
    started_at: datetime | None = None
    recovery_time: datetime | None = None

    def may_run(self, pinned_to: str) -> bool:
        """Return whether the worker runs tasks that are pinned to this version."""
        return pinned_to == self.application_version or pinned_to in self.compatible_with


def is_same_deadline(one: Any, other: Any) -> bool:
    """Return whether two stored deadlines of a worker are the same, so that it sent no heartbeat in between. All values
    that are not dates count as the same, because a heartbeat writes a date."""
    return one == other if isinstance(one, datetime) else not isinstance(other, datetime)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerRun(Record):
    """The last run of a scanner in the whole cluster. `id` is the scanner's name.

    `seconds` is the duration of that run. `looked_at` and `repaired` count records since the worker's previous report.
    """

    id: str
    ran_at: datetime | None = None
    nudged_at: datetime | None = None
    """When a worker last received a nudge from Celery beat. Without nudges, workers scan less often."""
    seconds: float = 0.0
    looked_at: int = 0
    repaired: int = 0
    worker: str | None = None
    error: str | None = None
    """Why the run was cut off."""
    lost: tuple[str, ...] = ()
    """For the scanner of workers: names of the workers that it last found silent and removed."""
    lost_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusLine(Record):
    """The number of processes of a type in a state."""

    type: str
    state: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Census(Record):
    """The latest counts of live and broken processes in the whole cluster. There is one such record."""

    id: str
    taken_at: datetime | None = None
    """Absent while the first census is taken."""
    next_at: datetime | None = None
    """When a worker may take the next census."""
    seconds: float = 0.0
    processes: tuple[CensusLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Record):
    """The increase of a counter, or of one bucket of a histogram, with these labels."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftCounts(Record):
    """The counts of a command, whose metrics nobody scrapes. A worker adds them to its own metrics."""

    id: str
    at: datetime | None = None
    samples: tuple[Sample, ...] = ()
