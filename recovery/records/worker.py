"""Who works, and what was seen of the queues: the Worker and QueueStatistics records."""

from __future__ import annotations

from dataclasses import dataclass
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
