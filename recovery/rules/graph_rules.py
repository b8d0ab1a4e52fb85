"""Rules that compare a process's graph with its decisions and tasks: lost records, steps that were not done, and links
that would never be removed.

A link is removed when the task that it waits for is applied. Therefore a link is dead if that task is not open, and
tasks that wait for each other in a circle are never ready.

The records of a snapshot are read at different moments, and they are written in an order: children, then the graph,
then the queue. Therefore rules that conclude from absent records apply only if the graph was untouched for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from recovery.records import Decision, DecisionState, Graph, ProcessState
from recovery.records.ids import START_TASK, record_id
from recovery.rules.derived_graph import is_untouched
from recovery.rules.findings import Finding, Repair, Rule, Snapshot, Surroundings


def start_not_registered(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """START_NOT_REGISTERED: the start of a process was acknowledged, and the client was cut off before it wrote the
    graph and the start task."""
    process, graph = snapshot.process, snapshot.graph
    assert process is not None
    start = process.start_task
    if any(d.state is DecisionState.FINISHED for d in snapshot.decisions.values()) or (graph and graph.finished):
        return
    missing = [
        name
        for name, is_present in (
            ("graph", graph is not None),
            ("start task", start in snapshot.tasks),
            ("start decision", start in snapshot.decisions),
        )
        if not is_present
    ]
    if missing and process.started_at and process.started_at < around.read_at - around.margin:
        evidence = f"no {', no '.join(missing)}; nothing decided"
        yield Finding(Rule.START_NOT_REGISTERED, process.id, Repair.REGISTER_START, evidence)


def graph_missing(snapshot: Snapshot, _around: Surroundings) -> Iterator[Finding]:
    """GRAPH_MISSING: decisions are finished, and the graph is absent."""
    decided = _decided(snapshot)
    if snapshot.graph is None and decided:
        evidence = f"{decided} of {len(snapshot.decisions)} decisions are finished, and there is no graph"
        yield Finding(Rule.GRAPH_MISSING, snapshot.process_id, Repair.REBUILD_GRAPH, evidence)


def not_applied(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """DECISION_NOT_APPLIED: the decision is finished, and the graph has the task as open."""
    graph = snapshot.graph
    if graph is None:
        return
    runs = snapshot.process is not None and snapshot.process.state is ProcessState.RUNNING
    failed_symptom = "failed, and the process still runs" if runs else "failed before in the graph"
    for task in graph.not_finished:
        decision = snapshot.decisions.get(task)
        if decision is None or decision.state is not DecisionState.FINISHED or task not in snapshot.tasks:
            continue
        outcome = decision.outcome
        if outcome and outcome.finished_at and outcome.finished_at < around.read_at - around.margin:
            symptom = failed_symptom if task in graph.failed else "open in the graph"
            evidence = f"finished {outcome.finished_at:%H:%M:%S}, {symptom}"
            yield Finding(Rule.DECISION_NOT_APPLIED, decision.id, Repair.APPLY, evidence, decision)


def children_missing(snapshot: Snapshot, _around: Surroundings) -> Iterator[Finding]:
    """CHILDREN_MISSING: the graph has the task as finished, and some of its children have neither Task nor Decision."""
    graph = snapshot.graph
    if graph is None:
        return
    applied = set(graph.finished)
    for task, decision in snapshot.decisions.items():
        if task not in applied or not decision.children:
            continue
        missing = [c.id for c in decision.children if c.id not in snapshot.decisions and c.id not in snapshot.tasks]
        if missing:
            evidence = f"{len(missing)} of {len(decision.children)} children lack their records, first {missing[0]}"
            yield Finding(Rule.CHILDREN_MISSING, decision.id, Repair.APPLY, evidence, decision)


def record_missing(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """TASK_MISSING, DECISION_MISSING: a record is absent of a task that the graph names, or of the start task.

    The records are made again from the decision of the parent, which holds its children. Without the parent's decision
    nobody knows what the task was, and the process breaks.
    """
    graph = snapshot.graph
    if graph is None or not is_untouched(graph, around):
        return
    parents: Mapping[str, Decision] | None = None
    undecided = any(True for _ in finished_undecided(snapshot, around))
    for task in dict.fromkeys((*graph.not_finished, *graph.finished, START_TASK)):
        has_task, has_decision = task in snapshot.tasks, task in snapshot.decisions
        if has_decision and (has_task or task not in graph.not_finished):
            continue  # the Task of a finished task is not needed any more
        if parents is None:
            parents = {child.id: d for d in snapshot.decisions.values() for child in d.children}
        parent = parents.get(task)
        applied = parent is not None and parent.task_id in graph.finished
        is_new = task == START_TASK and not graph.finished and not _decided(snapshot)
        if (applied and not has_task and not has_decision) or is_new:
            continue  # CHILDREN_MISSING, START_NOT_REGISTERED
        record = record_id(snapshot.process_id, task)
        rule, record_kind = (Rule.TASK_MISSING, "Task") if has_decision else (Rule.DECISION_MISSING, "Decision")
        is_lost_start = task == START_TASK and task not in graph.finished
        place = "open" if task in graph.not_finished else "not" if is_lost_start else "finished"
        symptom = f"{place} in the graph, and there is no {record_kind}"
        if parent is not None:
            yield Finding(rule, record, Repair.RESTORE, f"{symptom}; {parent.task_id} scheduled it", parent)
        elif task == START_TASK and has_decision:
            yield Finding(rule, record, Repair.RESTORE, f"{symptom}; the process tells what it was")
        elif not undecided:  # a task that will run again may have scheduled it, and will schedule it again
            yield Finding(rule, record, Repair.BREAK, f"{symptom}, and no decision that tells what it was")


def finished_undecided(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """FINISHED_UNDECIDED: the graph has the task as finished, and its decision is not finished."""
    graph = snapshot.graph
    if graph is None or not is_untouched(graph, around):
        return
    for task in graph.finished:
        decision = snapshot.decisions.get(task)
        if decision is not None and decision.state is not DecisionState.FINISHED:
            evidence = f"finished in the graph, {decision.state} in its decision"
            yield Finding(Rule.FINISHED_UNDECIDED, decision.id, Repair.REOPEN, evidence, decision)


def ready_not_queued(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """READY_NOT_QUEUED: a task has no open dependency, and was not enqueued."""
    graph = snapshot.graph
    if graph is None or not is_untouched(graph, around):
        return
    for task in graph.not_finished:
        decision = snapshot.decisions.get(task)
        if decision is not None and decision.state is DecisionState.WAITING and graph.is_ready(task):
            yield Finding(Rule.READY_NOT_QUEUED, decision.id, Repair.ENQUEUE_READY, "waiting for nothing", decision)


def not_recorded(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """FINISH_NOT_RECORDED: all tasks are finished, and the process still runs."""
    graph = snapshot.graph
    if graph is None or graph.not_finished or not graph.finished or not is_untouched(graph, around):
        return
    # The result of the process is unknown until a lost decision is made again.
    needed = (snapshot.decisions.get(task) for task in (*graph.finished, START_TASK))
    if all(decision is not None and decision.state is DecisionState.FINISHED for decision in needed):
        yield Finding(Rule.FINISH_NOT_RECORDED, graph.id, Repair.FINISH_PROCESS, "nothing is open")


def dead_link(snapshot: Snapshot, _around: Surroundings) -> Iterator[Finding]:
    """DEAD_LINK: a task waits for a task that is finished or unknown. Because each update of the graph adds and removes
    the links together with their tasks, a healthy graph never has a dead link."""
    graph = snapshot.graph
    if graph is None:
        return
    for task in sorted(graph.links.keys() & graph.not_finished.keys()):
        dead = [dep for dep in graph.links[task] if dep not in graph.not_finished]
        if dead:
            known = set(graph.finished)
            why = ", ".join(f"{dep} ({'finished' if dep in known else 'unknown'})" for dep in dead[:3])
            evidence = f"waits for {why}{' and others' if len(dead) > 3 else ''}"
            yield Finding(Rule.DEAD_LINK, record_id(graph.id, task), Repair.DROP_LINKS, evidence)


def cycle(snapshot: Snapshot, _around: Surroundings) -> Iterator[Finding]:
    """CYCLE: tasks wait for each other, or for tasks that they themselves schedule."""
    graph = snapshot.graph
    if graph is None or not graph.links:
        return
    waits = _waits(snapshot, graph)
    if circle := _circle(waits):
        evidence = " waits for ".join([*circle, circle[0]][:5])
        yield Finding(Rule.CYCLE, record_id(graph.id, circle[0]), Repair.BREAK, evidence)


def _waits(snapshot: Snapshot, graph: Graph) -> dict[str, list[str]]:
    """Return {open task: open tasks that must be applied before it}: its links, and the task that scheduled it."""
    waits = {t: [dep for dep in graph.links.get(t, ()) if dep in graph.not_finished] for t in graph.not_finished}
    for task in graph.not_finished:
        decision = snapshot.decisions.get(task)
        for child in decision.children if decision is not None else ():
            if child.id in waits:
                waits[child.id].append(task)
    return waits


def _circle(waits: dict[str, list[str]]) -> list[str]:
    """Return the tasks of one circle, beginning with the smallest id; empty if there is none.

    Takes linear time in the number of links. Not recursive, because chains may be ten thousand tasks long.
    """
    open_deps = {task: len(deps) for task, deps in waits.items()}
    waited_for: dict[str, list[str]] = {task: [] for task in waits}
    for task, deps in waits.items():
        for dep in deps:
            waited_for[dep].append(task)
    ready = [task for task, count in open_deps.items() if not count]
    while ready:
        for task in waited_for[ready.pop()]:
            open_deps[task] -= 1
            if not open_deps[task]:
                ready.append(task)
    stuck = {task for task, count in open_deps.items() if count}
    if not stuck:
        return []
    position_of: dict[str, int] = {}
    task_id = min(stuck)
    while (
        task_id not in position_of
    ):  # each stuck task waits for a stuck task, so this walk comes back to a task that it has seen
        position_of[task_id] = len(position_of)
        task_id = next(dep for dep in waits[task_id] if dep in stuck)
    circle = list(position_of)[position_of[task_id] :]
    first = circle.index(min(circle))
    return circle[first:] + circle[:first]


def _decided(snapshot: Snapshot) -> int:
    """Return the number of finished decisions."""
    return sum(decision.state is DecisionState.FINISHED for decision in snapshot.decisions.values())
