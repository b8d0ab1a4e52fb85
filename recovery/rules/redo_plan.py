"""What is done again when a task is: all that depends on its result, directly or not. Pure.

    done again   the task, and who waits for a value that comes of it
    dropped      what these had scheduled: they schedule anew, under other ids
    kept         everything else, the ones that scheduled them among it

A task depends on another by its arguments; where those name a task that gave promises of its children for its value,
by those children.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
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
    again, dropped = set[str](), set[str]()
    left = [(task, False) for task in roots]
    while left:
        task, is_dropped = left.pop()
        # A task that is dropped is not done again, and one that was to be done again may turn out to be dropped.
        if task in dropped or (task in again and not is_dropped):
            continue
        if is_dropped:
            dropped.add(task)
            again.discard(task)
        else:
            again.add(task)
        left += [(child, True) for child in scheduled[task]]
        left += [(waiter, False) for waiter in waiting[task]]
    return Redo(frozenset(again), tuple(_deepest_first(dropped, again, scheduled)))


def _deepest_first(dropped: set[str], again: set[str], scheduled: Mapping[str, Sequence[str]]) -> list[str]:
    """Dropped tasks, each before the one that scheduled it: what is cut off half way can be found again from above."""
    levels, level = list[list[str]](), sorted(again)
    while level:
        level = sorted(child for task in level for child in scheduled[task] if child in dropped)
        levels.append(level)
    # Damaged records may schedule each other in a circle, which nothing above leads to.
    in_a_circle = dropped.difference(*levels)
    return [*sorted(in_a_circle), *(task for level in reversed(levels) for task in level)]


def _with_promised(deps: Iterable[str], links: Mapping[str, Link]) -> set[str]:
    """These tasks, and those that their values promise, through promises within promises."""
    found, left = set[str](), list(deps)
    while left:
        if (task := left.pop()) not in found:
            found.add(task)
            left += links[task].waits if task in links else ()
    return found
