"""RECORD_DAMAGED: a record that is there and can't be read, since another program wrote something else into it.

What nothing is lost with is dropped, or made again from what is intact. The rest is told, and left to a person: nobody
else knows what was meant. Of a process with a damaged record no rule concludes from what is absent, or does not fit.
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
"""What comes of records that another program wrote: they can't be read, or hold what no rule can compare."""

DROPPABLE: Mapping[str, frozenset[str]] = {
    # All but what it came to, which life it is in, and whether its error breaks the process. Counters begin anew. Times
    # and holders serve to find what is overdue, which the decision is at once. A call is a copy, the Task names the
    # actor, the process has the epoch, and the cycle of retries begins anew. A task whose delay can't be read starts at
    # once. Refusals are counted anew. The state shows in what stands beside it. What a task is pinned to, its process
    # has.
    Decision.__name__: frozenset(shapes_of(Decision)) - {"_id", "outcome", "children", "restarts", "fallible"},
    # The id says when the process was started, the graph has its epoch, and the start task its retry policy.
    Process.__name__: frozenset(
        (
            *("epoch", "idleTimeout", "startedAt", "timedOutAt", "endedAt", "startTask", "recoveryTime", "retry"),
            *("context", "key", "version"),
        )
    ),
    Graph.__name__: frozenset({"epoch"}),
}
"""{kind of record: fields that it can do without}."""

_SHOWS_STATE = frozenset({"pass", "worker", "outcome", "eta"})
"""Fields of a decision from which its state is found (`state_shown`)."""


def record_damaged(snapshot: Snapshot) -> Iterator[Finding]:
    """All damaged records of a process."""
    for damage in snapshot.damaged:
        yield Finding(Rule.RECORD_DAMAGED, damage.record, _repair(snapshot, damage), str(damage))


def error_missing(process: Process) -> Iterator[Finding]:
    """RECORD_DAMAGED: a process is broken or aborted without an error: another program changed its state alone."""
    if process.state in UNSUCCESSFUL_PROCESSES and process.error is None:
        evidence = f"Process {process.id}: its state is {process.state}, and its error is missing"
        yield Finding(Rule.RECORD_DAMAGED, process.id, Repair.REPORT, evidence)


def not_judged(process_id: str, error: Exception) -> Finding:
    """RECORD_DAMAGED: something stands in a record of the process that no rule can work with."""
    evidence = f"no rule can judge it: {type(error).__name__}: {error}"
    return Finding(Rule.RECORD_DAMAGED, process_id, Repair.REPORT, evidence)


def foreign_id(decision: Decision) -> Finding:
    """RECORD_DAMAGED: no worker takes a message of a task whose id is none of ours, which might be a query."""
    evidence = f"queued, and its id {decision.id!r:.100} is not of the form PROCESS/TASK: no worker takes it"
    return Finding(Rule.RECORD_DAMAGED, decision.id, Repair.WAIT, evidence, decision)


def droppable(damage: DamagedRecord) -> bool:
    """Whether nothing is lost with what of a record can't be read."""
    if "state" in damage.fields and not _SHOWS_STATE.isdisjoint(damage.fields):
        return False
    return bool(damage.fields) and DROPPABLE.get(damage.kind, frozenset()).issuperset(damage.fields)


def state_shown(document: Mapping[str, Any], now: datetime) -> DecisionState:
    """Return the state that the other fields of a decision's document show.

    Only a finished decision has an outcome, only a claimed one a worker, and all that were ever queued have a pass.
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
    """Whether nothing came yet of a task, as far as its graph knows: it can be run again."""
    graph = snapshot.graph
    return graph is None or damage.record.partition("/")[2] not in graph.finished


def _is_known(snapshot: Snapshot, task: str) -> bool:
    """Whether what a task is stands elsewhere, too: in the decision of the task that scheduled it."""
    return any(child.id == task for decision in snapshot.decisions.values() for child in decision.children)
