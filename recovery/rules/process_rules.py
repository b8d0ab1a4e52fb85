"""Rules on a whole process: what no single record shows.

`graph_rules` has those on its graph, `broken_processes` those on one that broke.
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
    """All findings on a process, those on its decisions first. Empty means healthy."""
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
    found = [f for d in snapshot.decisions.values() if (f := judge_decision(d, around)) is not None]
    found += marker_missing(snapshot)  # whatever else there is: it needs nothing but the process
    if process is None or snapshot.damaged:
        return [*record_damaged(snapshot), *found]
    if contradicted := _contradicted(snapshot, around):
        # What else there is may come of it, and is found by the next look; what is applied to it would be lost.
        return [*contradicted, *(finding for finding in found if finding.repair is not Repair.APPLY)]
    return _once([*error_missing(process), *found, *_of_state(process.state, snapshot, around)])


def _of_state(state: ProcessState, snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """Yield the findings of the rules for a process in this state."""
    if state is ProcessState.RUNNING:
        for rule in _OF_RUNNING:
            yield from rule(snapshot, around)
    elif state is ProcessState.FINISHED:
        yield from finished_too_early(snapshot, around)
    elif state is ProcessState.BROKEN:
        yield from of_broken(snapshot, around)


def _contradicted(snapshot: Snapshot, around: Surroundings) -> list[Finding]:
    assert snapshot.process is not None
    if snapshot.process.state not in UNENDED_PROCESSES:
        return []
    return [*derived_graph.epoch_wrong(snapshot, around), *derived_graph.graph_contradicted(snapshot, around)]


def deadline_missing(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """DEADLINE_MISSING: a process that runs, or a graph with something open, that nobody would look at again."""
    process, graph = snapshot.process, snapshot.graph
    assert process is not None
    if not around.will_look(process.recovery_time):
        lacks = without(process.recovery_time)
        yield Finding(Rule.DEADLINE_MISSING, process.id, Repair.STAMP, f"running {lacks}")
    elif graph is not None and not around.will_look(graph.recovery_time) and graph.not_finished and not graph.failed:
        lacks = without(graph.recovery_time)
        yield Finding(Rule.DEADLINE_MISSING, graph.id, Repair.STAMP, f"open graph {lacks}")


def finished_too_early(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """FINISHED_TOO_EARLY: the process has a result, and tasks of it are open. Nobody takes back what was told. Where
    none is, its graph may still lack some, or name others."""
    graph = snapshot.graph
    if graph is not None and graph.not_finished:
        first = min(graph.not_finished)
        evidence = f"finished, and {len(graph.not_finished)} tasks are open, first {first}"
        yield Finding(Rule.FINISHED_TOO_EARLY, graph.id, Repair.REPORT, evidence)
    else:
        yield from derived_graph.graph_contradicted(snapshot, around)


def abort_cut_off(snapshot: Snapshot) -> Iterator[Finding]:
    """ABORT_CUT_OFF: the process is aborted, and its records are not at rest. Its graph is so last of all."""
    graph, live = snapshot.graph, [d for d in snapshot.decisions.values() if d.state is not DecisionState.FINISHED]
    if graph is not None and graph.recovery_time is not None:
        yield Finding(Rule.ABORT_CUT_OFF, graph.id, Repair.FINISH_ABORT, "aborted, and its graph is live")
    elif live:
        evidence = f"aborted, and {len(live)} tasks have not ended, first {live[0].task_id}: {live[0].state}"
        yield Finding(Rule.ABORT_CUT_OFF, snapshot.process_id, Repair.FINISH_ABORT, evidence)
    elif graph is not None and not graph.aborted:
        yield Finding(Rule.ABORT_CUT_OFF, graph.id, Repair.FINISH_ABORT, "aborted, and its graph goes on")


def of_aborted(decision: Decision) -> Finding:
    """ABORT_CUT_OFF: its process is aborted, and it has a deadline: nothing of it is to go on."""
    evidence = f"aborted, and a task of it is {decision.state}: {decision.task_id}"
    return Finding(Rule.ABORT_CUT_OFF, decision.process_id, Repair.FINISH_ABORT, evidence)


def _in_the_way(snapshot: Snapshot) -> Iterator[Finding]:
    """What has to be mended before tasks can be put back. Nothing else is said of records of two epochs, and the graph
    is about to be made anew."""
    return (one for one in record_damaged(snapshot) if one.repair is not Repair.REPLACE_GRAPH)


def redo_cut_off(process: Process) -> Iterator[Finding]:
    """REDO_CUT_OFF: tasks of the process are to be done again. Last of all that is taken off the process."""
    evidence = f"epoch {process.epoch} is to begin again from {', '.join(process.redo[:3]) or 'the tasks of its order'}"
    yield Finding(Rule.REDO_CUT_OFF, process.id, Repair.FINISH_REDO, evidence)


def removal_cut_off(process: Process) -> Iterator[Finding]:
    """REMOVAL_CUT_OFF: the process is being removed. Itself goes last."""
    yield Finding(Rule.REMOVAL_CUT_OFF, process.id, Repair.FINISH_REMOVAL, f"{process.state}, and being removed")


def order_missing(process: Process) -> Iterator[Finding]:
    """ORDER_MISSING: the process is marked to be removed or done again, and nobody who may has ordered it. What is to
    be done again was begun, perhaps, by a worker that knows no orders: it is left as it is."""
    if process.removing:
        yield Finding(Rule.ORDER_MISSING, process.id, Repair.TAKE_OFF_MARK, "to be removed, by nobody's order")
    else:
        evidence = f"to be done again from {', '.join(process.redo[:3])}, by nobody's order"
        yield Finding(Rule.ORDER_MISSING, process.id, Repair.REPORT, evidence)


def orphan(snapshot: Snapshot) -> Iterator[Finding]:
    """ORPHAN: records of no process. A start writes the Process first, so somebody removed it."""
    counts = {
        "graph": 1 if snapshot.graph is not None else 0,
        "tasks": len(snapshot.tasks),
        "decisions": len(snapshot.decisions),
    }
    there = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    if there:
        evidence = f"{there}, and no process of that id"
        yield Finding(Rule.ORPHAN, snapshot.process_id, Repair.REPORT, evidence)


_OF_RUNNING = (
    *GO_ON,
    graph_rules.not_recorded,
    time_impossible,
    process_timeout,
    deadline_missing,
)


def _once(found: list[Finding]) -> list[Finding]:
    """One finding per record and repair: the first rule that named it."""
    return list({(f.record, f.repair): f for f in reversed(found)}.values())[::-1]
