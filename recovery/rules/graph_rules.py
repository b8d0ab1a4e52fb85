"""Rules that hold a process's graph against its decisions and tasks: what is lost, what was not done, and links that
nothing will ever take away.

A link goes when the task that it waits for is applied. So it is dead if that task is not open; and if tasks wait for
each other in a circle, none of them is ever ready.

A snapshot is not read at one moment, and records are written in an order: children, then the graph, then the queue. So
where a rule concludes from what is absent, it does so only in a graph that nobody has touched for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from recovery.records import Decision, DecisionState, Graph, ProcessState
from recovery.records.ids import START_TASK, record_id
from recovery.rules.derived_graph import is_untouched
from recovery.rules.findings import Finding, Repair, Rule, Snapshot, Surroundings


def start_not_registered(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """START_NOT_REGISTERED: the client was told 'started', and then it was cut off."""
    process, graph = snapshot.process, snapshot.graph
    assert process is not None
    start = process.start_task
    if any(d.state is DecisionState.FINISHED for d in snapshot.decisions.values()) or (graph and graph.finished):
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
    if missing and process.started_at and process.started_at < around.read_at - around.margin:
        evidence = f"no {', no '.join(missing)}; nothing decided"
        yield Finding(Rule.START_NOT_REGISTERED, process.id, Repair.REGISTER_START, evidence)


def graph_missing(snapshot: Snapshot, _around: Surroundings) -> Iterator[Finding]:
    """GRAPH_MISSING: tasks are decided, and there is no graph that says what is open."""
    decided = _decided(snapshot)
    if snapshot.graph is None and decided:
        evidence = f"{decided} of {len(snapshot.decisions)} decisions are finished, and there is no graph"
        yield Finding(Rule.GRAPH_MISSING, snapshot.process_id, Repair.REBUILD_GRAPH, evidence)


def not_applied(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """DECISION_NOT_APPLIED: the decision is finished, the graph says the task is not."""
    graph = snapshot.graph
    if graph is None:
        return
    runs = snapshot.process is not None and snapshot.process.state is ProcessState.RUNNING
    failed = "failed, and the process still runs" if runs else "failed before in the graph"
    for task in graph.not_finished:
        decision = snapshot.decisions.get(task)
        if decision is None or decision.state is not DecisionState.FINISHED or task not in snapshot.tasks:
            continue
        outcome = decision.outcome
        if outcome and outcome.finished_at and outcome.finished_at < around.read_at - around.margin:
            seen = failed if task in graph.failed else "open in the graph"
            evidence = f"finished {outcome.finished_at:%H:%M:%S}, {seen}"
            yield Finding(Rule.DECISION_NOT_APPLIED, decision.id, Repair.APPLY, evidence, decision)


def children_missing(snapshot: Snapshot, _around: Surroundings) -> Iterator[Finding]:
    """CHILDREN_MISSING: the graph has the task as finished, and children of it have no record at all."""
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
    """TASK_MISSING, DECISION_MISSING: the graph names a task, or it is the start, and one of its records is absent.

    What a parent scheduled stands in the parent's decision, and is made from it again. Else nobody knows what is to be
    done: the process is broken, and says so.
    """
    graph = snapshot.graph
    if graph is None or not is_untouched(graph, around):
        return
    parents: Mapping[str, Decision] | None = None
    undecided = any(True for _ in finished_undecided(snapshot, around))
    for task in dict.fromkeys((*graph.not_finished, *graph.finished, START_TASK)):
        has_task, has_decision = task in snapshot.tasks, task in snapshot.decisions
        if has_decision and (has_task or task not in graph.not_finished):
            continue  # of a task that is done nobody reads the Task again
        if parents is None:
            parents = {child.id: d for d in snapshot.decisions.values() for child in d.children}
        parent = parents.get(task)
        applied = parent is not None and parent.task_id in graph.finished
        is_new = task == START_TASK and not graph.finished and not _decided(snapshot)
        if (applied and not has_task and not has_decision) or is_new:
            continue  # CHILDREN_MISSING, START_NOT_REGISTERED
        record = record_id(snapshot.process_id, task)
        rule, what = (Rule.TASK_MISSING, "Task") if has_decision else (Rule.DECISION_MISSING, "Decision")
        lost = task == START_TASK and task not in graph.finished
        place = "open" if task in graph.not_finished else "not" if lost else "finished"
        seen = f"{place} in the graph, and there is no {what}"
        if parent is not None:
            yield Finding(rule, record, Repair.RESTORE, f"{seen}; {parent.task_id} scheduled it", parent)
        elif task == START_TASK and has_decision:
            yield Finding(rule, record, Repair.RESTORE, f"{seen}; the process tells what it was")
        elif not undecided:  # else one of these may have scheduled it, and does so again
            yield Finding(rule, record, Repair.BREAK, f"{seen}, and no decision that tells what it was")


def finished_undecided(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """FINISHED_UNDECIDED: the graph has the task as finished, and its decision is not."""
    graph = snapshot.graph
    if graph is None or not is_untouched(graph, around):
        return
    for task in graph.finished:
        decision = snapshot.decisions.get(task)
        if decision is not None and decision.state is not DecisionState.FINISHED:
            evidence = f"finished in the graph, {decision.state} in its decision"
            yield Finding(Rule.FINISHED_UNDECIDED, decision.id, Repair.REOPEN, evidence, decision)


def ready_not_queued(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """READY_NOT_QUEUED: a task waits for nothing any more, and was not enqueued."""
    graph = snapshot.graph
    if graph is None or not is_untouched(graph, around):
        return
    for task in graph.not_finished:
        decision = snapshot.decisions.get(task)
        if decision is not None and decision.state is DecisionState.WAITING and graph.is_ready(task):
            yield Finding(Rule.READY_NOT_QUEUED, decision.id, Repair.ENQUEUE_READY, "waiting for nothing", decision)


def not_recorded(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """FINISH_NOT_RECORDED: all tasks are done, and the process still runs."""
    graph = snapshot.graph
    if graph is None or graph.not_finished or not graph.finished or not is_untouched(graph, around):
        return
    # Until a lost decision is made again the result is not to be had.
    needed = (snapshot.decisions.get(task) for task in (*graph.finished, START_TASK))
    if all(decision is not None and decision.state is DecisionState.FINISHED for decision in needed):
        yield Finding(Rule.FINISH_NOT_RECORDED, graph.id, Repair.FINISH_PROCESS, "nothing is open")


def dead_link(snapshot: Snapshot, _around: Surroundings) -> Iterator[Finding]:
    """DEAD_LINK: a task waits for one that is finished, or that nobody knows. One update makes and drops links, so
    there is no moment at which this is so while all is well."""
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
    """CYCLE: tasks that wait for each other, or for what they themselves are still to schedule."""
    graph = snapshot.graph
    if graph is None or not graph.links:
        return
    waits = _waits(snapshot, graph)
    if circle := _circle(waits):
        evidence = " waits for ".join([*circle, circle[0]][:5])
        yield Finding(Rule.CYCLE, record_id(graph.id, circle[0]), Repair.BREAK, evidence)


def _waits(snapshot: Snapshot, graph: Graph) -> dict[str, list[str]]:
    """{open task: open tasks that have to be applied before it}: those it links to, and who scheduled it."""
    waits = {t: [dep for dep in graph.links.get(t, ()) if dep in graph.not_finished] for t in graph.not_finished}
    for task in graph.not_finished:
        decision = snapshot.decisions.get(task)
        for child in decision.children if decision is not None else ():
            if child.id in waits:
                waits[child.id].append(task)
    return waits


def _circle(waits: dict[str, list[str]]) -> list[str]:
    """The tasks of one circle, the first by name first; empty if there is none. Takes time in proportion to the
    links, and no stack: chains may be ten thousand long."""
    left = {task: len(deps) for task, deps in waits.items()}
    waited_for: dict[str, list[str]] = {task: [] for task in waits}
    for task, deps in waits.items():
        for dep in deps:
            waited_for[dep].append(task)
    free = [task for task, count in left.items() if not count]
    while free:
        for task in waited_for[free.pop()]:
            left[task] -= 1
            if not left[task]:
                free.append(task)
    stuck = {task for task, count in left.items() if count}
    if not stuck:
        return []
    seen: dict[str, int] = {}
    at = min(stuck)
    while at not in seen:  # whoever is stuck waits for somebody who is: this walk comes back to where it was
        seen[at] = len(seen)
        at = next(dep for dep in waits[at] if dep in stuck)
    circle = list(seen)[seen[at] :]
    first = circle.index(min(circle))
    return circle[first:] + circle[:first]


def _decided(snapshot: Snapshot) -> int:
    return sum(decision.state is DecisionState.FINISHED for decision in snapshot.decisions.values())
