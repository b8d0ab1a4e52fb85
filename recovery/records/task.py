"""What is to be done: the Task record, how it is retried, and the copies of both in Decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from recovery.records.ids import ActorName
from recovery.records.record import OfTask, Record

CALL_BYTES = 2048
"""A call up to this size is copied into its Decision. Reading a Task takes a round trip; writing 2 KB more with
each of a decision's three or four updates takes less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions(Record):
    """A retry policy of a task's own, as far as it says something: what is None its actor says, or its process type.

    Durations are in seconds. See `retry.policy.Backoff`.
    """

    enabled: bool | None = None
    """False: not retried at all."""
    initial: float | None = None
    coefficient: float | None = None
    jitter_least: float | None = None
    jitter_most: float | None = None
    maximum: float | None = None
    total: float | None = None
    strategy: str | None = None
    """The name of the strategy that decides in the place of the policy, as the application registered it."""
    retryable: tuple[str, ...] = ()
    """Errors that the caller knows to be transient: full names of classes, and codes (RFC 49, 'Retryable with
    application context')."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child(Record):
    """A task that a decider scheduled, as its Decision holds it: enough to make the Task and Decision."""

    id: str
    actor: ActorName
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
    retry: RetryOptions | None = None
    context: str | None = None
    """JSON text of what retry strategies may read (RFC 49's clientContext)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(OfTask):
    """What is to be done. Immutable."""

    id: str
    actor: ActorName
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
    retry: RetryOptions | None = None
    context: str | None = None
    """JSON text of what retry strategies may read. Both are looked at where an attempt failed, and not copied into the
    Decision."""

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
