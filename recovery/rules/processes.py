"""Rules on a whole process: what no single record shows."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.records import DecisionState, ProcessState
from recovery.rules.decisions import judge_decision
from recovery.rules.model import Finding, Repair, Rule, Snapshot, Surroundings


def judge_process(snapshot: Snapshot, around: Surroundings) -> list[Finding]:
    """All findings on a process, those on its decisions first. Empty means healthy."""
    process = snapshot.process
    if process is None:
        return []
    found = [f for d in snapshot.decisions.values() if (f := judge_decision(d, around)) is not None]
    if process.state is ProcessState.RUNNING:
        for rule in (start_not_registered, not_applied, children_missing, ready_not_queued, not_recorded):
            found += rule(snapshot, around)
        if process.recovery_time is None:
            found.append(Finding(Rule.DEADLINE_MISSING, process.id, Repair.STAMP, "running without recoveryTime"))
    return _once(found)


def start_not_registered(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """START_NOT_REGISTERED: the client was told 'started', and then it was cut off."""
    process, graph = snapshot.process, snapshot.graph
    assert process is not None
    start = process.start_task
    if any(d.state is DecisionState.FINISHED for d in snapshot.decisions.values()):
        return
    missing = [
        name
        for name, there in (
            ("graph", graph is not None),
            ("start task", start in snapshot.tasks),
            ("start decision", start in snapshot.decisions),
        )
        if not there
    ]
    if missing and process.started_at and process.started_at < around.now - around.margin:
        evidence = f"no {', no '.join(missing)}; nothing decided"
        yield Finding(Rule.START_NOT_REGISTERED, process.id, Repair.REGISTER_START, evidence)


def not_applied(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """DECISION_NOT_APPLIED: the decision is finished, the graph says the task is not."""
    graph = snapshot.graph
    if graph is None:
        return
    for task in graph.not_finished:
        decision = snapshot.decisions.get(task)
        if decision is None or decision.state is not DecisionState.FINISHED or task in graph.failed:
            continue
        outcome = decision.outcome
        if outcome and outcome.finished_at and outcome.finished_at < around.now - around.margin:
            evidence = f"finished {outcome.finished_at:%H:%M:%S}, open in the graph"
            yield Finding(Rule.DECISION_NOT_APPLIED, decision.id, Repair.APPLY, evidence, decision)


def children_missing(snapshot: Snapshot, _around: Surroundings) -> Iterator[Finding]:
    """CHILDREN_MISSING: the graph has the task as finished, but not all records of its children are there."""
    graph = snapshot.graph
    if graph is None:
        return
    applied = set(graph.finished)
    for task, decision in snapshot.decisions.items():
        if task not in applied or not decision.children:
            continue
        missing = [c.id for c in decision.children if c.id not in snapshot.decisions or c.id not in snapshot.tasks]
        if missing:
            evidence = f"{len(missing)} of {len(decision.children)} children lack a record, first {missing[0]}"
            yield Finding(Rule.CHILDREN_MISSING, decision.id, Repair.APPLY, evidence, decision)


def ready_not_queued(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """READY_NOT_QUEUED: a task waits for nothing any more, and was not enqueued."""
    graph = snapshot.graph
    if graph is None or not graph.touched_at or graph.touched_at > around.now - around.margin:
        return
    for task in graph.not_finished:
        decision = snapshot.decisions.get(task)
        if decision is not None and decision.state is DecisionState.WAITING and graph.is_ready(task):
            yield Finding(Rule.READY_NOT_QUEUED, decision.id, Repair.ENQUEUE_READY, "waiting for nothing", decision)


def not_recorded(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """FINISH_NOT_RECORDED: all tasks are done, and the process still runs."""
    graph = snapshot.graph
    if graph is None or graph.not_finished or not graph.finished:
        return
    if graph.touched_at and graph.touched_at < around.now - around.margin:
        yield Finding(Rule.FINISH_NOT_RECORDED, graph.id, Repair.FINISH_PROCESS, "nothing is open")


def _once(found: list[Finding]) -> list[Finding]:
    """One finding per record and repair: the first rule that named it."""
    return list({(f.record, f.repair): f for f in reversed(found)}.values())[::-1]
