"""Rules on a broken process: what of it can still go on beside what failed, and does not; and what operators are to see
of it.

The rules on what goes on are those on a process that runs, except those on its own end and deadlines. What they say of
a task that the graph has as failed is not repeated: it is listed, and an operator has it restarted, with all that is
lost of it.

An interruption is written before the process is broken, and removed after the process runs again or the graph no longer
has the task as failed. So if it is absent beside records that were read after it, it is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from recovery.records import Decision, DecisionState, Graph, Process, ProcessState
from recovery.records.ids import record_id, split_record_id
from recovery.rules import graph_rules
from recovery.rules.findings import Finding, Repair, Rule, Snapshot, Surroundings
from recovery.rules.times import time_impossible

GO_ON = (
    graph_rules.start_not_registered,
    graph_rules.graph_missing,
    graph_rules.not_applied,
    graph_rules.children_missing,
    graph_rules.record_missing,
    graph_rules.finished_undecided,
    graph_rules.dead_link,
    graph_rules.cycle,
    graph_rules.ready_not_queued,
)
"""Rules on what goes on, in a process that runs as in one that is broken."""
_OF_A_TASK = frozenset({Repair.APPLY, Repair.BREAK, Repair.ENQUEUE_READY, Repair.RESTORE})


def of_broken(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """What is wrong with a broken process, beside what it broke for."""
    for rule in GO_ON:
        yield from (found for found in rule(snapshot, around) if not _is_noted(found, snapshot))
    # Of its own times and its graph's nobody waits for any.
    yield from (found for found in time_impossible(snapshot, around) if found.decision is not None)
    yield from interruption_missing(snapshot, around)


def _is_noted(finding: Finding, snapshot: Snapshot) -> bool:
    """Whether the graph has the task as failed, in the life that its decision is in, if it has one. A start that is
    not registered, of a process that is broken for a task: then tasks were decided, and are lost."""
    process, graph, task = snapshot.process, snapshot.graph, split_record_id(finding.record)[1]
    if finding.repair is Repair.REGISTER_START:
        error = process.error if process is not None else None
        return bool(graph is not None and graph.failed) or (error is not None and error.task is not None)
    if finding.repair not in _OF_A_TASK or graph is None or task not in graph.failed:
        return False
    decision = snapshot.decisions.get(task)
    if decision is None:
        return True
    ended_well = decision.state is DecisionState.FINISHED and not decision.failed
    return not ended_well and not is_restarted(decision, graph)


def marker_missing(snapshot: Snapshot) -> Iterator[Finding]:
    """A broken process still has its marker to write."""
    process = snapshot.process
    if process is not None and process.state is ProcessState.BROKEN and process.marker_due and snapshot.ordered:
        evidence = "it broke, and whoever was to write its marker was cut off"
        yield Finding(Rule.MARKER_MISSING, process.id, Repair.WRITE_MARKER, evidence)


@dataclass(frozen=True, slots=True)
class _Failure:
    """What a broken process is to be listed for, under a task: the decision's error, or without one the process's."""

    restarts: int
    decision: Decision | None = None


def interruption_missing(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """A broken process is not listed for what it broke for, or only for an earlier life of that task."""
    process, graph, listed = snapshot.process, snapshot.graph, snapshot.listed
    if process is None or listed is None:
        return
    changed = process.ended_at if graph is None else graph.touched_at
    if not (_long_ago(changed, around) and _long_ago(process.ended_at, around)):
        return
    for task, failure in _failures(process, graph, snapshot.decisions).items():
        if listed.get(task, -1) < failure.restarts:
            what = "it failed" if failure.decision is not None else "the process is broken"
            seen = f"{what}, and no interruption is listed" + (" for its last failure" if task in listed else "")
            record = record_id(process.id, task)
            yield Finding(Rule.INTERRUPTION_MISSING, record, Repair.LIST_AGAIN, seen, failure.decision)


def _failures(process: Process, graph: Graph | None, decisions: Mapping[str, Decision]) -> dict[str, _Failure]:
    """{task: what a broken process is to be listed for under it}."""
    failed = graph.failed if graph is not None else {task for task, one in decisions.items() if _has_failed(one)}
    found: dict[str, _Failure] = {}
    for task in failed:
        decision = decisions.get(task)
        if decision is not None and _has_failed(decision):
            found[task] = _Failure(decision.restarts or 0, decision)
        elif decision is None or not is_restarted(decision, graph):
            # The process can't go on for it, though it has not failed: its records are lost, say.
            restarts = (decision.restarts if decision is not None else None) or 0
            found[task] = _Failure(max(process.times_reopened, restarts))
    error = process.error
    whole = error is not None and error.task is None
    task = error.task if error is not None and error.task is not None else process.start_task
    if whole or (not found and (error is None or not _goes_on(decisions.get(task)))):
        found[task] = _Failure(process.times_reopened)
    return found


def _goes_on(decision: Decision | None) -> bool:
    """Whether a task was restarted, and the process is set running at its end at the latest."""
    if decision is None or not decision.restarts:
        return False
    return decision.state is not DecisionState.FINISHED or decision.recovery_time is not None


def _has_failed(decision: Decision) -> bool:
    return decision.state is DecisionState.FINISHED and decision.failed


def is_restarted(decision: Decision, graph: Graph | None) -> bool:
    """Whether a task is in a later life than the graph knows of: whoever restarted it was cut off, and it goes on."""
    known = graph.restarted.get(decision.task_id, 0) if graph is not None else 0
    return (decision.restarts or 0) > known


def _long_ago(moment: datetime | None, around: Surroundings) -> bool:
    """Whether nobody is at it any more: what was to be listed is listed, or never will be."""
    return moment is None or moment < around.read_at - around.margin
