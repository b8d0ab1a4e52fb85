"""Checks that the fields of a workflow fit together: ids, both ends of each edge, no cycles, and a runtime for each
task.

Adds a line to `problems` for each mistake. `document` has already reported unreadable values, so they are skipped here.
Of cycles that share tasks only one may be reported; the next appears after that one is removed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from recovery.wfformat.document import EXECUTION, SPECIFICATION, Executed, Fields, Specified

# {parent: its children}, with all tasks as keys, in the order of the file.
Edges = Mapping[str, Sequence[str]]


def check(fields: Fields, problems: list[str]) -> None:
    """Add a line to `problems` for each mistake."""
    if fields.tasks is None:
        return
    counts = Counter(task.id for task in fields.tasks)
    for id in _repeated(counts):
        problems.append(f"task {id!r}: {SPECIFICATION} has this id {counts[id]} times; ids must be unique")
    _check_lists(fields.tasks, problems)
    _check_both_ends([task for task in fields.tasks if counts[task.id] == 1], problems)
    for cycle in cycles(agreed_edges(fields.tasks)):
        path = " → ".join(repr(id) for id in [*cycle, cycle[0]])
        problems.append(f"cycle: {path}: each waits for the one before; remove one of these dependencies")
    if fields.runs is not None:
        _check_runs(fields.tasks, fields.runs, problems)


def agreed_edges(tasks: Sequence[Specified]) -> Edges:
    """Return the edges on which both ends agree. In a workflow without problems these are all edges."""
    parents = {task.id: set(task.parents or ()) for task in tasks}
    return {
        task.id: [
            child
            for child in dict.fromkeys(task.children or ())
            if child != task.id and task.id in parents.get(child, ())
        ]
        for task in tasks
    }


def topological_order(edges: Edges) -> list[str]:
    """Return the tasks, parents before children, otherwise in the order of the file.

    Tasks on a cycle or after one are left out.
    """
    tasks = list(edges)
    rank = {id: index for index, id in enumerate(tasks)}
    waits_for = Counter(child for children in edges.values() for child in children)
    ready = [rank[id] for id in tasks if not waits_for[id]]
    order = []
    while ready:
        id = tasks[heapq.heappop(ready)]
        order.append(id)
        for child in edges[id]:
            waits_for[child] -= 1
            if not waits_for[child]:
                heapq.heappush(ready, rank[child])
    return order


def cycles(edges: Edges) -> list[list[str]]:
    """Return cycles that share no task, each from parent to child, starting at its first task in the file."""
    ordered = set(topological_order(edges))
    stuck = [id for id in edges if id not in ordered]
    # Every stuck task has a stuck parent, so a walk from parent to parent never ends and must reach a cycle.
    parent_of = {child: id for id in reversed(stuck) for child in edges[id]}
    rank = {id: index for index, id in enumerate(stuck)}
    seen: set[str] = set()
    result = []
    for id in stuck:
        walk: dict[str, None] = {}
        while id not in seen:
            seen.add(id)
            walk[id] = None
            id = parent_of[id]
        if id in walk:
            path = list(walk)
            cycle = path[path.index(id) :][::-1]
            first = cycle.index(min(cycle, key=rank.__getitem__))
            result.append(cycle[first:] + cycle[:first])
    return result


def _check_lists(tasks: Sequence[Specified], problems: list[str]) -> None:
    known = {task.id for task in tasks}
    for task in tasks:
        for kind, ids in (("parent", task.parents or ()), ("child", task.children or ())):
            for id in dict.fromkeys(ids):
                if id == task.id:
                    problems.append(f"task {id!r}: is its own {kind}; remove it from that list")
                elif id not in known:
                    problems.append(
                        f"task {task.id!r}: {kind} {id!r} is not in {SPECIFICATION}; add it or correct the id"
                    )
            for id in _repeated(Counter(ids)):
                problems.append(f"task {task.id!r}: {kind} {id!r} is listed more than once; list it once")


def _check_both_ends(tasks: Sequence[Specified], problems: list[str]) -> None:
    parents = {task.id: set(task.parents) for task in tasks if task.parents is not None}
    children = {task.id: set(task.children) for task in tasks if task.children is not None}
    for task in tasks:
        for kind, ids, other_kind, others in (
            ("parent", task.parents, "child", children),
            ("child", task.children, "parent", parents),
        ):
            for id in dict.fromkeys(ids or ()):
                if id != task.id and id in others and task.id not in others[id]:
                    problems.append(
                        f"task {task.id!r}: has {kind} {id!r}, but {id!r} has no {other_kind} {task.id!r}; "
                        "add it there or remove it here"
                    )


def _check_runs(tasks: Sequence[Specified], runs: Sequence[Executed], problems: list[str]) -> None:
    counts = Counter(run.id for run in runs)
    known = {task.id for task in tasks}
    for id in dict.fromkeys(task.id for task in tasks):
        if id not in counts:
            problems.append(f"task {id!r}: is not in {EXECUTION}; add it with its runtimeInSeconds")
    for id in _repeated(counts):
        problems.append(f"task {id!r}: {EXECUTION} has it {counts[id]} times; keep one")
    for id in counts:
        if id not in known:
            problems.append(f"task {id!r}: is in {EXECUTION}, not in {SPECIFICATION}; remove it or correct the id")


def _repeated(counts: Counter[str]) -> Iterable[str]:
    return (id for id, count in counts.items() if count > 1)
