"""Rules on what tasks wait for: a link that nothing will ever take away.

A link goes when the task that it waits for is applied. So it is dead if that task is not open; and if tasks wait for
each other in a circle, none of them is ever ready.
"""

from __future__ import annotations

from collections.abc import Iterator

from recovery.records import Graph
from recovery.records.ids import record_id
from recovery.rules.findings import Finding, Repair, Rule, Snapshot, Surroundings


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
