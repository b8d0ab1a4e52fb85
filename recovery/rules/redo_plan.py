"""Computes which tasks run again, and which are dropped, when tasks are restarted. Pure.

    run again    the restarted tasks, and all tasks that depend on their values, directly or indirectly
    dropped      the tasks that these had scheduled, because they will schedule new tasks with other ids
    kept         all other tasks, including those that scheduled the tasks that run again

A task depends on the tasks in its arguments. If the value of such a task contains promises, it also depends on the
promised tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """The place of a task in its process: the task that scheduled it (`parent`), the tasks in its arguments (`deps`),
    and the tasks that its value promises once it has ended (`waits`)."""

    parent: str | None = None
    deps: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Redo:
    """The tasks of a process that run again, and the dropped tasks, deepest first."""

    again: frozenset[str]
    dropped: tuple[str, ...]


def redo_of(roots: Collection[str], links: Mapping[str, Link]) -> Redo:
    """Return which tasks run again and which are dropped when `roots` are restarted.

    Args:
        roots: The tasks to restart.
        links: {task: its place} of all tasks of the process.
    """
    scheduled, waiting = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for task, link in links.items():
        if link.parent is not None:
            scheduled[link.parent].append(task)
        for dep in _with_promised(link.deps, links):
            waiting[dep].append(task)
    again, dropped = set[str](), set[str]()
    pending = [(task, False) for task in roots]
    while pending:
        task, is_dropped = pending.pop()
        # A dropped task does not run again. A task that was to run again may turn out to be dropped.
        if task in dropped or (task in again and not is_dropped):
            continue
        if is_dropped:
            dropped.add(task)
            again.discard(task)
        else:
            again.add(task)
        pending += [(child, True) for child in scheduled[task]]
        pending += [(waiter, False) for waiter in waiting[task]]
    return Redo(frozenset(again), tuple(_deepest_first(dropped, again, scheduled)))


def _deepest_first(dropped: set[str], again: set[str], scheduled: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the dropped tasks, each before the task that scheduled it. If the removal is cut off, the remaining tasks
    can still be found from the tasks that scheduled them."""
    levels, level = list[list[str]](), sorted(again)
    while level:
        level = sorted(child for task in level for child in scheduled[task] if child in dropped)
        levels.append(level)
    # In damaged records, tasks may schedule each other in a circle that no other task leads to.
    in_a_circle = dropped.difference(*levels)
    return [*sorted(in_a_circle), *(task for level in reversed(levels) for task in level)]


def _with_promised(deps: Iterable[str], links: Mapping[str, Link]) -> set[str]:
    """Return these tasks and the tasks that their values promise, through promises within promises."""
    tasks, pending = set[str](), list(deps)
    while pending:
        if (task := pending.pop()) not in tasks:
            tasks.add(task)
            pending += links[task].waits if task in links else ()
    return tasks
