"""Why writes were rejected: every write is a compare-and-set, and this tells which of its conditions did not hold.

A rejection is no fault. It keeps the result of an attempt that lost its task, an old message or the second of two
repairs from doing harm. Many of one kind may have a cause that is a fault, so they are counted by step and guard, and
`recovery doctor` shows the latest with their processes.
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
    """The condition that did not hold: of several, the first in this order."""

    GONE = "gone"
    """There is no such record."""
    ACTOR = "actor"
    """The task is another actor's."""
    EPOCH = "epoch"
    """The process is done again, or aborted, or the task was restarted."""
    PASS = "pass"
    """The task was queued again since, under a new pass."""
    STATE = "state"
    """The record is in another state: somebody else was first."""
    DEADLINE = "deadline"
    """The deadline is another by now, or the time of the task as a whole is over."""
    VERSION = "version"
    """The graph has changed since it was read."""
    PASSING = "passing"
    """All conditions hold by now: the record has changed again since the write was rejected."""


_UNDECIDED = (DecisionState.QUEUED, DecisionState.DELAYED, DecisionState.WORKING)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a write expected of a decision. A field that is None was not compared."""

    actor: str
    states: tuple[DecisionState, ...] = ()
    """One of these; empty: the state was not compared. A tuple: what is stored may have no hash."""
    pass_key: str | None = None
    epoch: int | None = None
    restarts: int | None = None
    """0: it was never restarted."""
    deadline: datetime | None = None
    is_timed: bool = False
    """Whether the time of the task as a whole must not be over."""

    @classmethod
    def of_claim(cls, actor: str, pass_key: str, is_timed: bool) -> Conditions:
        """Those of a claim with a message."""
        return cls(actor, (DecisionState.QUEUED,), pass_key, is_timed=is_timed)

    @classmethod
    def of_finish(cls, claimed: Decision, of_any_attempt: bool) -> Conditions:
        """Those under which the result of an attempt is accepted; `of_any_attempt`: also of one that lost its claim."""
        if of_any_attempt:
            return cls(claimed.actor, _UNDECIDED, epoch=claimed.epoch, restarts=claimed.restarts or 0)
        return cls(claimed.actor, (DecisionState.WORKING,), claimed.pass_key)

    @classmethod
    def of_repair(cls, judged: Decision) -> Conditions:
        """Those of a repair of what was judged so. Its pass was not read: a new one comes with a new deadline."""
        return cls(judged.actor, (judged.state,), epoch=judged.epoch, deadline=judged.recovery_time)


def guard_of(expected: Conditions, stored: Mapping[str, Any] | None) -> Guard:
    """Return what did not hold of a decision that is stored so, or is not there."""
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
    """Count writes of {decision: what was expected of it} that were rejected, and keep the latest.

    One read for all. Does not raise: nothing depends on it.
    """
    if not expected:
        return
    try:
        stored = resources.store.rejected_writes.conditions(expected)
    except StoreError as error:
        log.debug("why %d writes were rejected is not known (%s)", len(expected), error)
        return
    for key, conditions in expected.items():
        note(resources, step, guard_of(conditions, stored.get(key)), conditions.actor, key)


def note_unrepaired(resources: Resources, judged: Mapping[str, Decision], repaired: Iterable[str]) -> None:
    """Count, of decisions that were judged so, those that were not as judged any more when they were to be repaired.

    One read for all of them. Does not raise.
    """
    rest = judged.keys() - set(repaired)
    note_rejected(resources, Step.REPAIR, {key: Conditions.of_repair(judged[key]) for key in rest})


def note(resources: Resources, step: Step, guard: Guard, actor: str, record: str) -> None:
    """Count a write that this guard rejected, and keep it as the latest of its actor. Does not raise."""
    metrics.REJECTED.labels(step.value, guard.value).inc()
    try:
        resources.store.rejected_writes.note(actor, step.value, guard.value, record)
    except StoreError as error:
        log.debug("%s: not kept that %s rejected its %s (%s)", record, guard, step, error)


def note_graph_changed(resources: Resources, seen: Graph) -> None:
    """Count a repair of a graph that is not any more as it was judged. Does not raise."""
    try:
        version = resources.store.graphs.versions([seen.id])
        process = resources.store.processes.brief(seen.id)
    except StoreError as error:
        log.debug("%s: why its repair was rejected is not known (%s)", seen.id, error)
        return
    if process is None or seen.id not in version:
        guard = Guard.GONE
    elif process.epoch != seen.epoch:
        guard = Guard.EPOCH
    else:
        guard = Guard.PASSING if version[seen.id] == seen.version else Guard.VERSION
    # The start task's actor has the name of the process type.
    note(resources, Step.REPAIR, guard, process.type if process is not None else "", seen.id)
