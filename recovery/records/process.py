"""The records of a process as a whole: Process, Graph, and Order.

An Order authorizes a change to a process that does not belong to its normal course: removal, a restart, or writing its
marker. A mark on the process (`removing`, `redo`, `markerDue`) leads workers to it. Because clients may write
processes, a mark is only a hint. The change is made only if the order that the mark names exists for this process and
epoch. Clients can neither write nor read orders.
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
    """An earlier epoch of a process, which ended when an operator restarted tasks, and its state at that time."""

    epoch: int
    state: ProcessState
    tasks: tuple[str, ...] = ()
    """The tasks that the operator restarted."""
    by: str
    reason: str
    ended_at: datetime
    operation: int | None = None
    """The number of the operation that restarted the tasks, if it was an operation."""
    error: ErrorInfo | None = None
    """The error of the process at that time, without its stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Record):
    """A run of a process type."""

    ALWAYS_WRITTEN: ClassVar = frozenset({"state", "epoch"})

    id: str
    type: ActorName
    args: str
    custom_id: str | None = None
    former_custom_id: str | None = None
    """The process's custom id until another process was started in its place."""
    replaced_by: str | None = None
    """The id of that other process, which does not exist if its start was cut off."""
    key: str | None = None
    """The result of the type's key function for this process; its marker has the same key."""
    labels: tuple[str, ...] = ()
    """The labels that its starter gave it for searches, each `NAME=VALUE`, sorted."""
    start_task: Literal["start"] = ids.START_TASK
    """Always `start`. Any other value is damage."""
    state: ProcessState = ProcessState.RUNNING
    epoch: ids.Epoch = 0
    reopened: int | None = None
    """How often the process was broken or restarted and set running again. A break that was decided before the last
    time is stale."""
    idle_timeout: float = 60.0
    started_at: datetime | None = None
    timed_out_at: datetime | None = None
    """When the process was counted as over its process_timeout."""
    retry: RetryOptions | None = None
    """The retry options of the start task."""
    context: str | None = None
    """The context of the start task; see `Task.context`."""
    ended_at: datetime | None = None
    result: str | None = None
    error: ErrorInfo | None = None
    removing: bool | None = None
    """The process has ended and is being removed with all of its records. The process itself is removed last and has a
    deadline until then."""
    order: str | None = None
    """The key of the order by which the process is removed, restarted, or gets its marker. Without that order, these
    marks have no effect."""
    imported_epoch: int | None = None
    """For an imported process: the epoch in which it was exported."""
    imported_as: int | None = None
    """For an imported process: the epoch that it got at the import. It has not changed since the import while it is in
    this epoch."""
    redo: tuple[str, ...] = ()
    """The tasks to restart from in this epoch, until the restart is carried out. Until then, nothing else is done to
    the process."""
    restarted_at: datetime | None = None
    """When an operator began the current epoch, from which the process_timeout then counts."""
    lives: tuple[Life, ...] = ()
    """The earlier epochs and restarts of the process, newest last."""
    version: str | None = None
    """The version of the application that started the process. Absent in records of library versions that did not
    record it."""
    pinned: bool | None = None
    """Whether the process's tasks are pinned to that version; absent if not."""
    scheduled_by: str | None = None
    """The name of the schedule that started the process."""
    retried_by_schedule: bool | None = None
    """Whether a retriable failure is retried by the schedule's next instance. If so, the schedule decides about the
    marker."""
    marker_due: bool | None = None
    """The process broke and its marker must still be written. The process has a deadline until then."""
    trace: Trace | None = None
    """The span of the start; absent if the start was not traced."""
    recovery_time: datetime | None = None

    @property
    def exported_epoch(self) -> int:
        """Return the epoch by which two exports of the process are compared: the later export has the higher one. For a
        process that has not changed since its import, this is the epoch in which it was exported."""
        imported = self.imported_epoch
        return imported if imported is not None and self.imported_as == self.epoch else self.epoch

    @property
    def times_reopened(self) -> int:
        """Return `reopened` as a number, 0 if it is absent."""
        return self.reopened or 0

    @property
    def is_marked(self) -> bool:
        """Return whether a mark or an order asks for a change to this process, whether or not the order exists.

        A running process with an order is marked even if its `redo` is lost, because the order names the tasks.
        """
        lost_redo = self.order is not None and self.state is ProcessState.RUNNING
        return bool(self.removing or self.redo or self.marker_due or lost_redo)

    def is_as(self, seen: Process) -> bool:
        """Return whether the process has been neither ended, reopened, aborted nor restarted since it was `seen`."""
        return (self.state, self.epoch, self.times_reopened) == (seen.state, seen.epoch, seen.times_reopened)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairNote(Record):
    """The last repair of a process or one of its records."""

    rule: str
    """The rule of the failure map that made the finding."""
    source: str
    """Who ordered the repair: `auto` (a scanner), `operator`, or `operation N`."""
    worker: str
    """The worker that made the repair."""
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph(Record):
    """The open tasks of a process and what each of them waits for."""

    ALWAYS_WRITTEN: ClassVar = frozenset({"epoch", "version", "not_finished", "links", "finished", "failed"})
    KEPT_WHEN_EMPTY: ClassVar = frozenset({"not_finished", "links", "finished", "failed"})

    id: str
    epoch: ids.Epoch = 0
    not_finished: dict[str, datetime] = field(default_factory=dict)
    links: dict[str, dict[str, bool]] = field(default_factory=dict)
    """{task: {open dependency: True}}."""
    finished: tuple[str, ...] = ()
    """The tasks whose decisions were applied."""
    failed: dict[str, bool] = field(default_factory=dict)
    """{task that ended with an error: True}. Failed tasks stay open, so their dependents keep waiting."""
    restarted: dict[str, int] = field(default_factory=dict)
    """{restarted task: the last `restarts` of its decision that was applied to the graph}."""
    aborted: bool | None = None
    idle_timeout: float = 60.0
    version: int = 0
    touched_at: datetime | None = None
    recovery_time: datetime | None = None
    repaired: RepairNote | None = None
    """The last repair; absent if there was none."""

    def is_ready(self, task: str) -> bool:
        """Return whether `task` is open and has no open dependency."""
        return task in self.not_finished and not self.links.get(task)


class OrderKind(StrEnum):
    """The change that an order authorizes."""

    REMOVE = "remove"
    REDO = "redo"
    MARK = "mark"
    """Write the marker of a broken process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Record):
    """An authorization to change a marked process.

    `id` is `P/KEY`, where KEY is a secret that the process's `order` contains. `epoch` is the epoch of the process
    while it is marked.
    """

    id: str
    kind: OrderKind
    epoch: int
    tasks: tuple[str, ...] = ()
    """The tasks to restart from, for a redo."""
    at: datetime

    @property
    def process_id(self) -> str:
        return split_record_id(self.id)[0]


class Mark(NamedTuple):
    """A request for a change, as the process's own fields state it, with the key of the order that must confirm it."""

    process: str
    kind: OrderKind
    key: str
    epoch: Any
    """The process's epoch as stored. An epoch that is not a number, because another program damaged it, matches any
    order."""

    @property
    def order(self) -> str:
        """Return the id of the order that the mark names."""
        return record_id(self.process, self.key)

    def is_by(self, order: Order) -> bool:
        """Return whether `order` confirms this mark."""
        is_spoilt = not isinstance(self.epoch, (int, float))
        return (order.id, order.kind) == (self.order, self.kind) and (is_spoilt or self.epoch == order.epoch)


def mark_of(process: Process) -> Mark | None:
    """Return the mark of a process; None if it has none or names no order."""
    if process.order is None or not process.is_marked:
        return None
    if process.marker_due and not process.removing:
        kind = OrderKind.MARK
    else:
        kind = OrderKind.REMOVE if process.removing else OrderKind.REDO
    return Mark(process.id, kind, process.order, process.epoch)
