"""The Task record, the retry options of a task, and their copies in decisions (`Call` and `Child`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from recovery.records.ids import ActorName
from recovery.records.record import OfTask, Record

CALL_BYTES = 2048
"""Maximum size of a call that is copied into its Decision, in bytes. The copy saves a claim the round trip that reads
the Task, which takes longer than writing 2 KB more with each update of a decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions(Record):
    """The retry policy of one task. Options that are None are inherited from its actor or its process type.

    Durations are in seconds. See `retry.policy.Backoff`.
    """

    enabled: bool | None = None
    """False: the task is not retried."""
    initial: float | None = None
    coefficient: float | None = None
    jitter_least: float | None = None
    jitter_most: float | None = None
    maximum: float | None = None
    total: float | None = None
    strategy: str | None = None
    """The registered name of the strategy that decides instead of the policy."""
    retryable: tuple[str, ...] = ()
    """Errors that the caller knows to be transient: qualified class names, and codes (RFC 49, 'Retryable with
    application context')."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child(Record):
    """A scheduled task in its parent's Decision, with all data that the child's Task and Decision need."""

    id: str
    actor: ActorName
    args: str
    deps: tuple[str, ...] = ()
    dependents: dict[str, str] = field(default_factory=dict)
    """{sibling that waits for this task: the sibling's actor}."""
    unlocks: dict[str, str] = field(default_factory=dict)
    """The dependents that wait for no other task."""
    eta: datetime | None = None
    delay: float | None = None
    fallible: bool | None = None
    """True: if the task fails, its dependents receive a `Failure` as its value."""
    retry: RetryOptions | None = None
    context: str | None = None
    """JSON text for retry strategies (RFC 49's clientContext)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(OfTask):
    """One call of an actor in a process. Immutable; the task's state is in its Decision."""

    id: str
    actor: ActorName
    args: str
    parent: str | None = None
    epoch: int = 0
    deps: tuple[str, ...] = ()
    """The tasks whose values the arguments need."""
    dependents: dict[str, str] = field(default_factory=dict)
    """{task whose arguments need this task's value: its actor}."""
    unlocks: dict[str, str] = field(default_factory=dict)
    """The dependents that wait for no other task. They are ready as soon as this task is finished."""
    fallible: bool | None = None
    retry: RetryOptions | None = None
    context: str | None = None
    """JSON text for retry strategies. `retry` and `context` are needed only after a failed attempt, so they are not
    copied into the Decision."""

    def call(self) -> Call | None:
        """Return the copy of this task for its Decision; None if it is larger than `CALL_BYTES`."""
        size = len(self.args) + 40 * (len(self.deps) + len(self.dependents))
        if size > CALL_BYTES:
            return None
        return Call(
            args=self.args, parent=self.parent, deps=self.deps, dependents=self.dependents, unlocks=self.unlocks
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Record):
    """A copy of a small Task in its Decision, so that a claim returns all that an attempt needs. The copy cannot become
    stale, because a Task never changes."""

    args: str
    parent: str | None = None
    deps: tuple[str, ...] = ()
    dependents: dict[str, str] = field(default_factory=dict)
    unlocks: dict[str, str] = field(default_factory=dict)
