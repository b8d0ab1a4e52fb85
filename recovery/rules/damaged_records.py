"""Rules on damaged records (RECORD_DAMAGED): records that exist but cannot be read, because another program changed
them.

A damaged field is dropped if it holds nothing that would be lost, or is made again from intact records. All other
damage is only reported, because only a person knows which value is right. While a record of a process is damaged, no
rule draws conclusions from records that are absent or contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from recovery.errors import DamagedRecord
from recovery.records import (
    UNENDED_PROCESSES,
    UNSUCCESSFUL_PROCESSES,
    Decision,
    DecisionState,
    Graph,
    Process,
    Task,
    shapes_of,
)
from recovery.rules.findings import Finding, Repair, Rule, Snapshot

SPOILT = (DamagedRecord, TypeError, ValueError, AttributeError, KeyError, OverflowError)
"""Exceptions that damaged records cause: a record cannot be read, or has a value that a rule cannot compare."""

DROPPABLE: Mapping[str, frozenset[str]] = {
    # All fields except the result, the number of restarts, and whether an error breaks the process. Counters, retries
    # and refusals begin anew. Times and holders only serve to find overdue decisions, and a decision without them is
    # overdue at once. The call is a copy of the Task, which also names the actor; the process has the epoch and the
    # pinned version. A task whose delay cannot be read starts at once. The state follows from the other fields.
    Decision.__name__: frozenset(shapes_of(Decision)) - {"_id", "outcome", "children", "restarts", "fallible"},
    # The id contains the time of the start, the graph has the epoch, and the start task has the retry policy.
    Process.__name__: frozenset(
        (
            *("epoch", "idleTimeout", "startedAt", "timedOutAt", "endedAt", "startTask", "recoveryTime", "retry"),
            *("context", "key", "version"),
        )
    ),
    Graph.__name__: frozenset({"epoch"}),
}
"""{kind of record: fields that can be dropped without a loss}."""

_SHOWS_STATE = frozenset({"pass", "worker", "outcome", "eta"})
"""Fields of a decision from which its state follows (`state_shown`)."""


def record_damaged(snapshot: Snapshot) -> Iterator[Finding]:
    """RECORD_DAMAGED: yield a finding for each damaged record of a process."""
    for damage in snapshot.damaged:
        yield Finding(Rule.RECORD_DAMAGED, damage.record, _repair(snapshot, damage), str(damage))


def error_missing(process: Process) -> Iterator[Finding]:
    """RECORD_DAMAGED: a broken or aborted process has no error, because another program changed only its state."""
    if process.state in UNSUCCESSFUL_PROCESSES and process.error is None:
        evidence = f"Process {process.id}: its state is {process.state}, and its error is missing"
        yield Finding(Rule.RECORD_DAMAGED, process.id, Repair.REPORT, evidence)


def not_judged(process_id: str, error: Exception) -> Finding:
    """RECORD_DAMAGED: return the finding for a process that made a rule raise this exception."""
    evidence = f"no rule can judge it: {type(error).__name__}: {error}"
    return Finding(Rule.RECORD_DAMAGED, process_id, Repair.REPORT, evidence)


def foreign_id(decision: Decision) -> Finding:
    """RECORD_DAMAGED: return the finding for a queued decision with a foreign id. Workers reject its messages, because
    such an id might be a query."""
    evidence = f"queued, and its id {decision.id!r:.100} is not of the form PROCESS/TASK: no worker takes it"
    return Finding(Rule.RECORD_DAMAGED, decision.id, Repair.WAIT, evidence, decision)


def droppable(damage: DamagedRecord) -> bool:
    """Return whether the damaged fields of a record can be dropped without a loss."""
    if "state" in damage.fields and not _SHOWS_STATE.isdisjoint(damage.fields):
        return False
    return bool(damage.fields) and DROPPABLE.get(damage.kind, frozenset()).issuperset(damage.fields)


def state_shown(document: Mapping[str, Any], now: datetime) -> DecisionState:
    """Return the state of a decision as its other fields show it.

    Only a finished decision has an outcome, only a claimed decision has a worker, and every decision that was ever
    queued has a pass.
    """
    if "outcome" in document:
        return DecisionState.FINISHED
    if "worker" in document:
        return DecisionState.WORKING
    if "pass" not in document:
        return DecisionState.WAITING
    eta = document.get("eta")
    return DecisionState.DELAYED if isinstance(eta, datetime) and eta > now else DecisionState.QUEUED


def _repair(snapshot: Snapshot, damage: DamagedRecord) -> Repair:
    process = snapshot.process
    if droppable(damage):
        return Repair.MEND
    if process is None or process.state not in UNENDED_PROCESSES:
        return Repair.REPORT
    if damage.kind == Decision.__name__ and damage.fields == ("outcome",) and _is_unapplied(snapshot, damage):
        return Repair.PUT_BACK
    if damage.kind == Graph.__name__ and len(snapshot.damaged) == 1 and snapshot.decisions:
        return Repair.REPLACE_GRAPH
    if damage.kind == Task.__name__ and _is_known(snapshot, damage.record.partition("/")[2]):
        return Repair.RESTORE_TASK
    return Repair.REPORT


def _is_unapplied(snapshot: Snapshot, damage: DamagedRecord) -> bool:
    """Return whether the graph does not have the task as finished, so that the task can run again."""
    graph = snapshot.graph
    return graph is None or damage.record.partition("/")[2] not in graph.finished


def _is_known(snapshot: Snapshot, task: str) -> bool:
    """Return whether the decision of the task that scheduled this task is there, from which it can be made again."""
    return any(child.id == task for decision in snapshot.decisions.values() for child in decision.children)
