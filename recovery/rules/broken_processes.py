"""Rules on a broken process: tasks that could go on but do not, and failures that are not listed for operators.

Tasks that did not fail go on in a broken process. Therefore the rules for running processes apply, except those on the
end and the deadlines of the process itself. Findings on tasks that the graph has as failed are left out: these tasks
are listed, and an operator's restart also restores their lost records.

An interruption is written before its process breaks. It is removed after the process runs again, or after the graph no
longer has the task as failed. Therefore, if an interruption is absent although records that were read after it say
otherwise, it is lost.
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
"""Rules on tasks that go on, for running and for broken processes."""
_OF_A_TASK = frozenset({Repair.APPLY, Repair.BREAK, Repair.ENQUEUE_READY, Repair.RESTORE})


def of_broken(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """Yield the findings on a broken process, except those on the failures for which it broke."""
    for rule in GO_ON:
        yield from (finding for finding in rule(snapshot, around) if not _is_noted(finding, snapshot))
    # Nothing waits for the times of a broken process itself or of its graph.
    yield from (finding for finding in time_impossible(snapshot, around) if finding.decision is not None)
    yield from interruption_missing(snapshot, around)


def _is_noted(finding: Finding, snapshot: Snapshot) -> bool:
    """Return whether a finding concerns a failure that is known already, so that it is left to an operator.

    This is so if the graph has the task as failed and the task was not restarted since. It is also so for an
    unregistered start if the process broke for a task: in that case tasks had been decided, and their records are lost.
    """
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
    """MARKER_MISSING: the marker of a broken process is due and was not written."""
    process = snapshot.process
    if process is not None and process.state is ProcessState.BROKEN and process.marker_due and snapshot.ordered:
        evidence = "it broke, and whoever was to write its marker was cut off"
        yield Finding(Rule.MARKER_MISSING, process.id, Repair.WRITE_MARKER, evidence)


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failure for which a broken process must be listed under a task. Its error is the decision's; without a decision
    it is the process's."""

    restarts: int
    decision: Decision | None = None


def interruption_missing(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """INTERRUPTION_MISSING: no interruption lists a failure for which a process broke, or only an earlier failure of
    that task."""
    process, graph, listed = snapshot.process, snapshot.graph, snapshot.listed
    if process is None or listed is None:
        return
    changed = process.ended_at if graph is None else graph.touched_at
    if not (_long_ago(changed, around) and _long_ago(process.ended_at, around)):
        return
    for task, failure in _failures(process, graph, snapshot.decisions).items():
        if listed.get(task, -1) < failure.restarts:
            symptom = "it failed" if failure.decision is not None else "the process is broken"
            evidence = f"{symptom}, and no interruption is listed" + (" for its last failure" if task in listed else "")
            record = record_id(process.id, task)
            yield Finding(Rule.INTERRUPTION_MISSING, record, Repair.LIST_AGAIN, evidence, failure.decision)


def _failures(process: Process, graph: Graph | None, decisions: Mapping[str, Decision]) -> dict[str, _Failure]:
    """Return {task: the failure for which a broken process must be listed under this task}."""
    failed = graph.failed if graph is not None else {task for task, d in decisions.items() if _has_failed(d)}
    failures: dict[str, _Failure] = {}
    for task in failed:
        decision = decisions.get(task)
        if decision is not None and _has_failed(decision):
            failures[task] = _Failure(decision.restarts or 0, decision)
        elif decision is None or not is_restarted(decision, graph):
            # The process cannot go on because of this task although it has not failed, for example because its records
            # are lost.
            restarts = (decision.restarts if decision is not None else None) or 0
            failures[task] = _Failure(max(process.times_reopened, restarts))
    error = process.error
    is_whole_process = error is not None and error.task is None
    task = error.task if error is not None and error.task is not None else process.start_task
    if is_whole_process or (not failures and (error is None or not _goes_on(decisions.get(task)))):
        failures[task] = _Failure(process.times_reopened)
    return failures


def _goes_on(decision: Decision | None) -> bool:
    """Return whether a task was restarted and is still going on, so that the process runs again when it ends."""
    if decision is None or not decision.restarts:
        return False
    return decision.state is not DecisionState.FINISHED or decision.recovery_time is not None


def _has_failed(decision: Decision) -> bool:
    return decision.state is DecisionState.FINISHED and decision.failed


def is_restarted(decision: Decision, graph: Graph | None) -> bool:
    """Return whether a task was restarted and the graph does not know of it yet, because the restart was cut off. Such
    a task goes on."""
    known = graph.restarted.get(decision.task_id, 0) if graph is not None else 0
    return (decision.restarts or 0) > known


def _long_ago(moment: datetime | None, surroundings: Surroundings) -> bool:
    """Return whether the step that began at this moment is over or was cut off, so that it lists nothing any more."""
    return moment is None or moment < surroundings.read_at - surroundings.margin
