"""Find out which condition rejected a write, and count the rejections.

Every write is a compare-and-set. A rejected write is not a fault: it keeps the result of an attempt that lost its task,
a stale message, or the second of two repairs from doing harm. Many rejections of one kind may have a fault as their
cause. So they are counted by step and guard, and `recovery doctor` shows the latest of them with their processes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from recovery import metrics
from recovery.engine.resources import Resources
from recovery.errors import StoreError
from recovery.records import Decision, DecisionState, Graph

log = logging.getLogger(__name__)


class Step(StrEnum):
    """The step whose write was rejected."""

    CLAIM = "claim"
    FINISH = "finish"
    APPLY = "apply"
    INTERRUPT = "interrupt"
    REPAIR = "repair"


class Guard(StrEnum):
    """The condition that did not hold. If several did not hold, the first of them in this order."""

    GONE = "gone"
    """The record does not exist."""
    ACTOR = "actor"
    """The task belongs to another actor."""
    EPOCH = "epoch"
    """The process was done again or aborted, or the task was restarted."""
    PASS = "pass"
    """The task was queued again under a new pass."""
    STATE = "state"
    """The record is in another state, because another write was first."""
    DEADLINE = "deadline"
    """The deadline has changed, or the time limit of the whole task is over."""
    VERSION = "version"
    """The graph has changed since it was read."""
    PASSING = "passing"
    """All conditions hold now: the record has changed again since the write was rejected."""


_UNDECIDED = (DecisionState.QUEUED, DecisionState.DELAYED, DecisionState.WORKING)


@dataclass(frozen=True, slots=True)
class Conditions:
    """The values that a write expected in a decision. A field that is None was not compared."""

    actor: str
    states: tuple[DecisionState, ...] = ()
    """The expected states. Empty if the state was not compared. A tuple, because a stored value may not be hashable."""
    pass_key: str | None = None
    epoch: int | None = None
    restarts: int | None = None
    """The expected number of restarts. 0 if the task was never restarted."""
    deadline: datetime | None = None
    is_timed: bool = False
    """Whether the time limit of the whole task must not be over."""

    @classmethod
    def of_claim(cls, actor: str, pass_key: str, is_timed: bool) -> Conditions:
        """Return the conditions of a claim with a message."""
        return cls(actor, (DecisionState.QUEUED,), pass_key, is_timed=is_timed)

    @classmethod
    def of_finish(cls, claimed: Decision, of_any_attempt: bool) -> Conditions:
        """Return the conditions under which the result of an attempt is accepted. With `of_any_attempt`, the result of
        an attempt that lost its claim is accepted, too."""
        if of_any_attempt:
            return cls(claimed.actor, _UNDECIDED, epoch=claimed.epoch, restarts=claimed.restarts or 0)
        return cls(claimed.actor, (DecisionState.WORKING,), claimed.pass_key)

    @classmethod
    def of_repair(cls, judged: Decision) -> Conditions:
        """Return the conditions of a repair that was decided from this decision. The pass is not compared, because it
        was not read: a new pass comes with a new deadline."""
        return cls(judged.actor, (judged.state,), epoch=judged.epoch, deadline=judged.recovery_time)


def guard_of(expected: Conditions, stored: Mapping[str, Any] | None) -> Guard:
    """Return the first condition that a stored decision does not meet. `stored` is None if there is no decision."""
    if stored is None:
        return Guard.GONE
    if stored.get("actor") != expected.actor:
        return Guard.ACTOR
    if expected.epoch is not None and stored.get("epoch") != expected.epoch:
        return Guard.EPOCH
    if expected.restarts is not None and (stored.get("restarts") or 0) != expected.restarts:
        return Guard.EPOCH
    if expected.pass_key is not None and stored.get("pass") != expected.pass_key:
        return Guard.PASS
    if expected.states and stored.get("state") not in expected.states:
        return Guard.STATE
    if expected.deadline is not None and stored.get("recoveryTime") != expected.deadline:
        return Guard.DEADLINE
    return Guard.DEADLINE if expected.is_timed else Guard.PASSING


def note_rejected(resources: Resources, step: Step, expected: Mapping[str, Conditions]) -> None:
    """Count rejected writes, and keep the latest of each actor. Reads all decisions with one query.

    Does not raise, because nothing depends on the counts.

    Args:
        resources: The connections.
        step: The step whose writes were rejected.
        expected: {decision id: the conditions of its write}.
    """
    if not expected:
        return
    try:
        stored = resources.store.rejected_writes.conditions(expected)
    except StoreError as error:
        log.debug("could not find out why %d writes were rejected (%s)", len(expected), error)
        return
    for key, conditions in expected.items():
        note(resources, step, guard_of(conditions, stored.get(key)), conditions.actor, key)


def note_unrepaired(resources: Resources, judged: Mapping[str, Decision], repaired: Iterable[str]) -> None:
    """Count the decisions that were not repaired, because they had changed after they were judged.

    Reads all of them with one query. Does not raise.

    Args:
        resources: The connections.
        judged: {decision id: the decision from which its repair was decided}.
        repaired: The ids of the decisions that were repaired.
    """
    unrepaired = judged.keys() - set(repaired)
    note_rejected(resources, Step.REPAIR, {key: Conditions.of_repair(judged[key]) for key in unrepaired})


def note(resources: Resources, step: Step, guard: Guard, actor: str, record: str) -> None:
    """Count a write that this guard rejected, and keep it as the latest of its actor. Does not raise."""
    metrics.REJECTED.labels(step.value, guard.value).inc()
    try:
        resources.store.rejected_writes.note(actor, step.value, guard.value, record)
    except StoreError as error:
        log.debug("%s: could not record that guard %s rejected step %s (%s)", record, guard, step, error)


def note_graph_changed(resources: Resources, seen: Graph) -> None:
    """Count a rejected repair of a graph that had changed after it was judged. Does not raise."""
    try:
        versions = resources.store.graphs.versions([seen.id])
        process = resources.store.processes.brief(seen.id)
    except StoreError as error:
        log.debug("%s: could not find out why its repair was rejected (%s)", seen.id, error)
        return
    if process is None or seen.id not in versions:
        guard = Guard.GONE
    elif process.epoch != seen.epoch:
        guard = Guard.EPOCH
    else:
        guard = Guard.PASSING if versions[seen.id] == seen.version else Guard.VERSION
    # The start task's actor has the name of the process type.
    note(resources, Step.REPAIR, guard, process.type if process is not None else "", seen.id)
