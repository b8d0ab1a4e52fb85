"""What is done again when a task is: all that depends on its result, directly or not. Pure.

    done again   the task, and who waits for a value that comes of it
    dropped      what these had scheduled: they schedule anew, under other ids
    kept         everything else, the ones that scheduled them among it

A task depends on another by its arguments; where those name a task that gave promises of its children for its value,
by those children.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """What places a task in its process: who scheduled it, what its arguments wait for, and the children that its value
    promises, if it has ended."""

    parent: str | None = None
    deps: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Redo:
    """The tasks of a process that are done again, and those that are dropped, the deepest first."""

    again: frozenset[str]
    dropped: tuple[str, ...]


def redo_of(roots: Collection[str], links: Mapping[str, Link]) -> Redo:
    """What is done again with these tasks, of all tasks of a process."""
    scheduled, waiting = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for task, link in links.items():
        if link.parent is not None:
            scheduled[link.parent].append(task)
        for dep in _with_promised(link.deps, links):
            waiting[dep].append(task)
    again, depth = set[str](), dict[str, int]()
    left = [(task, -1) for task in roots]
    while left:
        task, below = left.pop()
        # One that is dropped is not done again, and one that was to be may turn out to be.
        if task in depth if below >= 0 else (task in again or task in depth):
            continue
        if below >= 0:
            depth[task] = below
            again.discard(task)
        else:
            again.add(task)
        left += [(child, max(below, 0) + 1) for child in scheduled[task]]
        left += [(one, -1) for one in waiting[task]]
    dropped = sorted(depth, key=lambda task: (-depth[task], task))
    return Redo(frozenset(again), tuple(dropped))


def _with_promised(deps: Iterable[str], links: Mapping[str, Link]) -> set[str]:
    """These tasks, and those that their values promise, through promises within promises."""
    found, left = set[str](), list(deps)
    while left:
        if (task := left.pop()) not in found:
            found.add(task)
            left += links[task].waits if task in links else ()
    return found
