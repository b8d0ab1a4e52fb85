"""Rules on a whole process, which need several of its records.

`graph_rules` has the rules on graphs, `broken_processes` the rules on broken processes.
"""

from __future__ import annotations

from collections.abc import Iterator

from recovery.records import UNENDED_PROCESSES, Decision, DecisionState, Process, ProcessState
from recovery.rules import derived_graph, graph_rules
from recovery.rules.broken_processes import GO_ON, marker_missing, of_broken
from recovery.rules.damaged_records import error_missing, record_damaged
from recovery.rules.findings import Finding, Repair, Rule, Snapshot, Surroundings
from recovery.rules.task_rules import judge_decision
from recovery.rules.times import process_timeout, time_impossible, without


def judge_process(snapshot: Snapshot, around: Surroundings) -> list[Finding]:
    """Return all findings on a process, in general those on its decisions first. An empty list means healthy."""
    process = snapshot.process
    if process is None and not snapshot.damaged:
        return list(orphan(snapshot))
    if process is not None and process.removing:
        return list(removal_cut_off(process) if snapshot.ordered else order_missing(process))
    if process is not None and process.state is ProcessState.ABORTED and not snapshot.damaged:
        return list(abort_cut_off(snapshot)) or list(error_missing(process))
    if process is not None and process.state is ProcessState.RUNNING:
        if snapshot.ordered and process.is_marked and not process.marker_due:
            return [*_in_the_way(snapshot), *redo_cut_off(process)]
        if process.redo:
            return list(order_missing(process))
    findings = [f for d in snapshot.decisions.values() if (f := judge_decision(d, around)) is not None]
    findings += marker_missing(snapshot)  # needs only the Process, so other damage does not matter
    if process is None or snapshot.damaged:
        return [*record_damaged(snapshot), *findings]
    if contradicted := _contradicted(snapshot, around):
        # Further findings may result from the contradiction; the next check finds those that remain. A decision that is
        # applied to a contradicted graph would be lost.
        return [*contradicted, *(finding for finding in findings if finding.repair is not Repair.APPLY)]
    return _once([*error_missing(process), *findings, *_of_state(process.state, snapshot, around)])


def _of_state(state: ProcessState, snapshot: Snapshot, surroundings: Surroundings) -> Iterator[Finding]:
    """Yield the findings of the rules for a process in this state."""
    if state is ProcessState.RUNNING:
        for rule in _OF_RUNNING:
            yield from rule(snapshot, surroundings)
    elif state is ProcessState.FINISHED:
        yield from finished_too_early(snapshot, surroundings)
    elif state is ProcessState.BROKEN:
        yield from of_broken(snapshot, surroundings)


def _contradicted(snapshot: Snapshot, surroundings: Surroundings) -> list[Finding]:
    """Return the findings on records of a process that contradict each other."""
    assert snapshot.process is not None
    if snapshot.process.state not in UNENDED_PROCESSES:
        return []
    return [
        *derived_graph.epoch_wrong(snapshot, surroundings),
        *derived_graph.graph_contradicted(snapshot, surroundings),
    ]


def deadline_missing(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """DEADLINE_MISSING: a running process, or a graph with open tasks, has no deadline or one that is years ahead."""
    process, graph = snapshot.process, snapshot.graph
    assert process is not None
    if not around.will_look(process.recovery_time):
        lacks = without(process.recovery_time)
        yield Finding(Rule.DEADLINE_MISSING, process.id, Repair.STAMP, f"running {lacks}")
    elif graph is not None and not around.will_look(graph.recovery_time) and graph.not_finished and not graph.failed:
        lacks = without(graph.recovery_time)
        yield Finding(Rule.DEADLINE_MISSING, graph.id, Repair.STAMP, f"open graph {lacks}")


def finished_too_early(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """FINISHED_TOO_EARLY: the process has a result, and some of its tasks are open. A result, once reported, is never
    revoked. If no task is open, the graph may still contradict the decisions (GRAPH_CONTRADICTED)."""
    graph = snapshot.graph
    if graph is not None and graph.not_finished:
        first = min(graph.not_finished)
        evidence = f"finished, and {len(graph.not_finished)} tasks are open, first {first}"
        yield Finding(Rule.FINISHED_TOO_EARLY, graph.id, Repair.REPORT, evidence)
    else:
        yield from derived_graph.graph_contradicted(snapshot, around)


def abort_cut_off(snapshot: Snapshot) -> Iterator[Finding]:
    """ABORT_CUT_OFF: the process is aborted, and its records are not at rest. An abort changes the graph last."""
    graph, live = snapshot.graph, [d for d in snapshot.decisions.values() if d.state is not DecisionState.FINISHED]
    if graph is not None and graph.recovery_time is not None:
        yield Finding(Rule.ABORT_CUT_OFF, graph.id, Repair.FINISH_ABORT, "aborted, and its graph is live")
    elif live:
        evidence = f"aborted, and {len(live)} tasks have not ended, first {live[0].task_id}: {live[0].state}"
        yield Finding(Rule.ABORT_CUT_OFF, snapshot.process_id, Repair.FINISH_ABORT, evidence)
    elif graph is not None and not graph.aborted:
        yield Finding(Rule.ABORT_CUT_OFF, graph.id, Repair.FINISH_ABORT, "aborted, and its graph goes on")


def of_aborted(decision: Decision) -> Finding:
    """ABORT_CUT_OFF: return the finding for a decision with a deadline whose process is aborted."""
    evidence = f"aborted, and a task of it is {decision.state}: {decision.task_id}"
    return Finding(Rule.ABORT_CUT_OFF, decision.process_id, Repair.FINISH_ABORT, evidence)


def _in_the_way(snapshot: Snapshot) -> Iterator[Finding]:
    """Return the findings on damaged records that prevent a restart.

    Other rules do not apply to records of two epochs. A damaged graph does not matter, because the restart replaces it.
    """
    return (finding for finding in record_damaged(snapshot) if finding.repair is not Repair.REPLACE_GRAPH)


def redo_cut_off(process: Process) -> Iterator[Finding]:
    """REDO_CUT_OFF: a restart of tasks is not complete. Its last step removes the mark from the process."""
    evidence = f"epoch {process.epoch} is to begin again from {', '.join(process.redo[:3]) or 'the tasks of its order'}"
    yield Finding(Rule.REDO_CUT_OFF, process.id, Repair.FINISH_REDO, evidence)


def removal_cut_off(process: Process) -> Iterator[Finding]:
    """REMOVAL_CUT_OFF: the removal of a process is not complete. Its last step removes the Process."""
    yield Finding(Rule.REMOVAL_CUT_OFF, process.id, Repair.FINISH_REMOVAL, f"{process.state}, and being removed")


def order_missing(process: Process) -> Iterator[Finding]:
    """ORDER_MISSING: a process is marked to be removed or restarted, and no order authorizes it. A restart is only
    reported, because a worker of an older version, which knows no orders, may have begun it."""
    if process.removing:
        yield Finding(Rule.ORDER_MISSING, process.id, Repair.TAKE_OFF_MARK, "to be removed, by nobody's order")
    else:
        evidence = f"to be done again from {', '.join(process.redo[:3])}, by nobody's order"
        yield Finding(Rule.ORDER_MISSING, process.id, Repair.REPORT, evidence)


def orphan(snapshot: Snapshot) -> Iterator[Finding]:
    """ORPHAN: records exist without their Process. Because a start writes the Process first, somebody removed it."""
    counts = {
        "graph": 1 if snapshot.graph is not None else 0,
        "tasks": len(snapshot.tasks),
        "decisions": len(snapshot.decisions),
    }
    counted = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    if counted:
        evidence = f"{counted}, and no process of that id"
        yield Finding(Rule.ORPHAN, snapshot.process_id, Repair.REPORT, evidence)


_OF_RUNNING = (
    *GO_ON,
    graph_rules.not_recorded,
    time_impossible,
    process_timeout,
    deadline_missing,
)


def _once(findings: list[Finding]) -> list[Finding]:
    """Return only the first finding for each record and repair."""
    return list({(f.record, f.repair): f for f in reversed(findings)}.values())[::-1]
