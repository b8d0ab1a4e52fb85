"""The frozen records. All times are aware datetimes in UTC, set by the database's clock.

Arguments and values are JSON texts, not documents: any JSON value is kept to the letter (keys with dots or
dollars, whole numbers of any size), no scan has to decode them, and an update can't mistake them for an
expression. A promise inside one is written `{"$promise": task id}`; see `values`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from recovery.records import ids
from recovery.records.states import DecisionState, ProcessState

CALL_BYTES = 2048
"""A call up to this size is copied into its Decision. Reading a Task takes a round trip; writing 2 KB more with
each of a decision's three or four updates takes less."""


class Record:
    """Base of the records: frozen; a changed copy is made by `evolve`."""

    __slots__ = ()

    def evolve(self, **changes: Any) -> Self:
        """A copy with these fields changed."""
        return replace(self, **changes)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo(Record):
    """Why a task, or a process, has no value."""

    kind: str
    """Name of the error's type."""
    message: str
    """Up to 500 characters."""
    task: str | None = None
    actor: str | None = None
    stack: str | None = None
    fingerprint: str | None = None
    """What alike errors have in common; see `failure.fingerprint`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child(Record):
    """A task that a decider scheduled, as its Decision holds it: enough to make the Task and Decision."""

    id: str
    actor: str
    args: str
    deps: tuple[str, ...] = ()
    dependents: dict[str, str] = field(default_factory=dict)
    """{sibling that waits for this one: its actor}."""
    unlocks: dict[str, str] = field(default_factory=dict)
    """Those of the dependents that wait for nothing else."""
    eta: datetime | None = None
    delay: float | None = None
    fallible: bool | None = None
    """True: if it fails, those that wait for it get the failure as its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Record):
    """What is to be done. Immutable."""

    id: str
    actor: str
    args: str
    parent: str | None = None
    epoch: int = 0
    deps: tuple[str, ...] = ()
    """Tasks that the arguments wait for."""
    dependents: dict[str, str] = field(default_factory=dict)
    """{task whose arguments wait for this one: its actor}."""
    unlocks: dict[str, str] = field(default_factory=dict)
    """Those of the dependents that wait for nothing else: ready as soon as this one is finished."""
    fallible: bool | None = None

    @property
    def process_id(self) -> str:
        return ids.split_record_id(self.id)[0]

    @property
    def task_id(self) -> str:
        return ids.split_record_id(self.id)[1]

    def call(self) -> Call | None:
        """This task's copy for its Decision; None if it is too large to be written with every change of state."""
        size = len(self.args) + 40 * (len(self.deps) + len(self.dependents))
        if size > CALL_BYTES:
            return None
        return Call(
            args=self.args, parent=self.parent, deps=self.deps, dependents=self.dependents, unlocks=self.unlocks
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Record):
    """What a small Task holds beside its actor, kept in its Decision as well: a claim then brings all that an
    attempt needs. A copy of what never changes can't go stale."""

    args: str
    parent: str | None = None
    deps: tuple[str, ...] = ()
    dependents: dict[str, str] = field(default_factory=dict)
    unlocks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Record):
    """How a task ended: a value or an error, and the pass of the attempt whose result was accepted."""

    pass_key: str
    finished_at: datetime | None = None
    value: str | None = None
    waits: tuple[str, ...] = ()
    """Children that the value still promises; who waits for this task waits for them."""
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Record):
    """How far a task is, and what came of it."""

    id: str
    actor: str
    state: DecisionState = DecisionState.WAITING
    epoch: int = 0
    pass_key: str | None = None
    attempts: int = 0
    timeouts: int = 0
    losses: int | None = None
    """How often its message was lost and it was queued again for that; absent if never."""
    restarts: int | None = None
    """How often an operator restarted the task; absent if never. What was decided before the last time is stale."""
    fallible: bool | None = None
    """The task's, and not in `call`: of a large task too it must be known whether its error breaks the process."""
    call: Call | None = None
    eta: datetime | None = None
    delay: float | None = None
    enqueued_at: datetime | None = None
    """When it was first queued: what its task_timeout counts from. `queued_at` is when it was last."""
    queued_at: datetime | None = None
    claimed_at: datetime | None = None
    worker: str | None = None
    outcome: Outcome | None = None
    children: tuple[Child, ...] = ()
    recovery_time: datetime | None = None

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
    def failed(self) -> bool:
        """Whether it ended with an error that breaks its process: a fallible task's is its value."""
        return self.outcome is not None and self.outcome.error is not None and not self.fallible

    @property
    def process_id(self) -> str:
        return ids.split_record_id(self.id)[0]

    @property
    def task_id(self) -> str:
        return ids.split_record_id(self.id)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph(Record):
    """What of a process is open. `failed` tasks ended with an error: who waits for them goes on waiting."""

    id: str
    epoch: int = 0
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

    def is_ready(self, task: str) -> bool:
        """Whether `task` is open and waits for nothing."""
        return task in self.not_finished and not self.links.get(task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Record):
    """A run of a process type."""

    id: str
    type: str
    args: str
    custom_id: str | None = None
    start_task: str = ids.START_TASK
    state: ProcessState = ProcessState.RUNNING
    epoch: int = 0
    reopened: int | None = None
    """How often it was broken and set running again. What was to break it before the last time is stale."""
    idle_timeout: float = 60.0
    started_at: datetime | None = None
    timed_out_at: datetime | None = None
    """When it was counted that its process_timeout is past."""
    ended_at: datetime | None = None
    result: str | None = None
    error: ErrorInfo | None = None
    recovery_time: datetime | None = None


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
    started_at: datetime | None = None
    recovery_time: datetime | None = None


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
    """When the queue was last known to be empty: what was pushed before is in a worker's hands or lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption(Record):
    """A task that ended with an error for which its process is broken: what an operator has to look at.

    Its id is the task's, `P/T`, so what is listed is what is broken now. The stack stays in the decision's outcome.
    """

    id: str
    type: str
    """The process's."""
    actor: str
    kind: str
    message: str
    fingerprint: str
    attempt: int = 0
    restarts: int = 0
    """Of the decision that failed."""
    at: datetime | None = None

    @property
    def process_id(self) -> str:
        return ids.split_record_id(self.id)[0]
