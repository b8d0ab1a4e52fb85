"""A run of a process type: the Process and Graph records, and the Order record for what an operator has done to it.

An Order is something to be done to a process beyond its normal life. A mark on the process (`removing`, `redo`,
`markerDue`) has it found, and is only a hint, because clients may write processes. What is marked is done only if the
order that the mark names exists, for that process, in that epoch. Clients can neither write nor read orders.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Literal, NamedTuple

from recovery.records import ids
from recovery.records.decision import ErrorInfo
from recovery.records.ids import ActorName, record_id, split_record_id
from recovery.records.record import ProcessState, Record, Trace
from recovery.records.task import RetryOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Life(Record):
    """An epoch of a process that an operator ended by doing tasks of it again, and what it had come to by then."""

    epoch: int
    state: ProcessState
    tasks: tuple[str, ...] = ()
    """From which it was done again in the next."""
    by: str
    reason: str
    ended_at: datetime
    operation: int | None = None
    """The number of the operation that did it."""
    error: ErrorInfo | None = None
    """Without its stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Record):
    """A run of a process type."""

    ALWAYS_WRITTEN: ClassVar = frozenset({"state", "epoch"})

    id: str
    type: ActorName
    args: str
    custom_id: str | None = None
    former_custom_id: str | None = None
    """The one that it had, until another process was started in its place."""
    replaced_by: str | None = None
    """That one's id; it was not saved if its start was cut off."""
    key: str | None = None
    """What of its type it is for, by the type's key function: its marker's."""
    labels: tuple[str, ...] = ()
    """What its starter gave it to be searched by, each `NAME=VALUE`, in order."""
    start_task: Literal["start"] = ids.START_TASK
    """Always the same. Other values are damage."""
    state: ProcessState = ProcessState.RUNNING
    epoch: ids.Epoch = 0
    reopened: int | None = None
    """How often it was broken and set running again. What was to break it before the last time is stale."""
    idle_timeout: float = 60.0
    started_at: datetime | None = None
    timed_out_at: datetime | None = None
    """When it was counted that its process_timeout is past."""
    retry: RetryOptions | None = None
    """Of its start task, as is the context."""
    context: str | None = None
    ended_at: datetime | None = None
    result: str | None = None
    error: ErrorInfo | None = None
    removing: bool | None = None
    """It is over, and is being removed with all of its records: itself last. Its deadline stands until then."""
    order: str | None = None
    """Names the order by which it is being removed or done again, or its marker is due; without that order none of it
    is carried out."""
    imported_epoch: int | None = None
    """The epoch that it had when it was exported, of one that was read back."""
    imported_as: int | None = None
    """The epoch that it was read back in. While it is of that it is as it was exported."""
    redo: tuple[str, ...] = ()
    """Tasks from which it is to be done again in this epoch, while that is carried out. Nothing else is done about it
    meanwhile."""
    restarted_at: datetime | None = None
    """When its epoch began, if an operator began it: what its process_timeout counts from."""
    lives: tuple[Life, ...] = ()
    """Its epochs before this one, the newest last."""
    version: str | None = None
    """The version of the application that started it. Absent of versions of the library that did not record it."""
    pinned: bool | None = None
    """Its tasks are pinned to that version; absent if not."""
    scheduled_by: str | None = None
    """The schedule that it is an occurrence of."""
    retried_by_schedule: bool | None = None
    """A failure that may pass by itself is tried again by the next instance: its schedule writes the marker."""
    marker_due: bool | None = None
    """It broke, and its marker is to be written. Its deadline stands until that is done."""
    trace: Trace | None = None
    """The span of its start; absent where that was not traced."""
    recovery_time: datetime | None = None

    @property
    def exported_epoch(self) -> int:
        """The epoch to tell by which of two exports is the later one: while it is as it was read back, that of the
        export which it was read back from."""
        told = self.imported_epoch
        return told if told is not None and self.imported_as == self.epoch else self.epoch

    @property
    def times_reopened(self) -> int:
        """`reopened` as a number: 0 where it never was."""
        return self.reopened or 0

    @property
    def is_marked(self) -> bool:
        """Whether something is to be done to it, if its order stands.

        What runs and names an order is to be done again, also if its `redo` is lost: the order names the tasks.
        """
        lost_redo = self.order is not None and self.state is ProcessState.RUNNING
        return bool(self.removing or self.redo or self.marker_due or lost_redo)

    def is_as(self, seen: Process) -> bool:
        """Whether nobody has ended, reopened, aborted or restarted it since it was seen."""
        return (self.state, self.epoch, self.times_reopened) == (seen.state, seen.epoch, seen.times_reopened)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairNote(Record):
    """The last repair of anything of a process."""

    rule: str
    """The rule of the failure map that found what was wrong."""
    source: str
    """On whose behalf: `auto` (a scanner), `operator`, or `operation N`."""
    worker: str
    """Who did it."""
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph(Record):
    """What of a process is open. `failed` tasks ended with an error: who waits for them goes on waiting."""

    ALWAYS_WRITTEN: ClassVar = frozenset({"epoch", "version", "not_finished", "links", "finished", "failed"})
    KEPT_WHEN_EMPTY: ClassVar = frozenset({"not_finished", "links", "finished", "failed"})

    id: str
    epoch: ids.Epoch = 0
    not_finished: dict[str, datetime] = field(default_factory=dict)
    links: dict[str, dict[str, bool]] = field(default_factory=dict)
    """{task: {dependency still open: True}}."""
    finished: tuple[str, ...] = ()
    failed: dict[str, bool] = field(default_factory=dict)
    restarted: dict[str, int] = field(default_factory=dict)
    """{task that was restarted: the `restarts` of its decision that the graph knows of}."""
    aborted: bool | None = None
    idle_timeout: float = 60.0
    version: int = 0
    touched_at: datetime | None = None
    recovery_time: datetime | None = None
    repaired: RepairNote | None = None
    """Absent if nothing was ever repaired."""

    def is_ready(self, task: str) -> bool:
        """Whether `task` is open and waits for nothing."""
        return task in self.not_finished and not self.links.get(task)


class OrderKind(StrEnum):
    """What is ordered."""

    REMOVE = "remove"
    REDO = "redo"
    MARK = "mark"
    """Its marker is to be written: it broke for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Record):
    """`id` is `P/key`, with a key that nobody can guess and that the mark names. The epoch is the process's, while that
    is marked."""

    id: str
    kind: OrderKind
    epoch: int
    tasks: tuple[str, ...] = ()
    """From which it is to be done again."""
    at: datetime

    @property
    def process_id(self) -> str:
        return split_record_id(self.id)[0]


class Mark(NamedTuple):
    """What stands in a process: that this is to be done to it, by the order of this key."""

    process: str
    kind: OrderKind
    key: str
    epoch: Any
    """As it stands there. One that another program has spoilt keeps nothing that was ordered from its end."""

    @property
    def order(self) -> str:
        """The id of the order that it names."""
        return record_id(self.process, self.key)

    def is_by(self, order: Order) -> bool:
        """Whether an order is for this process, as it is marked."""
        is_spoilt = not isinstance(self.epoch, (int, float))
        return (order.id, order.kind) == (self.order, self.kind) and (is_spoilt or self.epoch == order.epoch)


def mark_of(process: Process) -> Mark | None:
    """How a process is marked; None: it is not, or by nobody who names an order."""
    if process.order is None or not process.is_marked:
        return None
    if process.marker_due and not process.removing:
        kind = OrderKind.MARK
    else:
        kind = OrderKind.REMOVE if process.removing else OrderKind.REDO
    return Mark(process.id, kind, process.order, process.epoch)
