"""Apply for several processes at once, each with a small graph: by one round trip where `apply` takes one for each.

    children of all → graphs of all → enqueue all that is ready → finish all processes that are complete

In each process the order is that of one; cut off anywhere, each is where one may be cut off. What is not as it should
be for that (a restart, another epoch, a graph that was rebuilt, is large, or damaged) is left to `apply`, which finds
done what was done of it here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from recovery.engine.apply.apply import CHILDREN, finished_of, with_actors
from recovery.engine.apply.complete import Complete, finish_many
from recovery.engine.isolation import in_a_line, is_of_servers
from recovery.engine.resources import Resources
from recovery.engine.steps import Applied, Effect, Ended, Take, enqueue, records_of_children
from recovery.records import Decision
from recovery.records.ids import record_id
from recovery.store import GraphView

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ready:
    """What became ready by decisions of one process: {decision: its actor}, in this epoch."""

    together: Sequence[Ended]
    actors: Mapping[str, str]
    epoch: int


TakeEach = Callable[[Sequence[Ready]], Sequence[Decision]]
"""Claims for the caller some of what became ready, at most one for each process."""


def take_one(together: Sequence[Ended], take: TakeEach) -> Take:
    """The same for one process."""
    return lambda ready, epoch: next(iter(take([Ready(together, ready, epoch)])), None)


def apply_many(
    resources: Resources, groups: Sequence[Sequence[Ended]], take: TakeEach | None = None
) -> list[Effect | None]:
    """Apply groups of decisions, each of one process and epoch. None: this one is to be applied by itself. Errors of
    servers are raised."""
    by_process = {together[0].process_id: together for together in groups if _is_plain(together)}
    if not by_process:
        return [None for _ in groups]
    try:
        views = _applied(resources, list(by_process.values()))
        ready = {
            key: Ready(by_process[key], with_actors(by_process[key], _ready(by_process[key], view)), view.epoch)
            for key, view in views.items()
        }
        claimed = take([one for one in ready.values() if one.actors]) if take is not None else ()
        taken = {one.id for one in claimed}
        enqueue(resources, [key for one in ready.values() for key in one.actors if key not in taken])
        complete = [Complete(ready[key].together, view) for key, view in views.items() if view.complete]
        over = finish_many(resources, complete) if complete else set[str]()
    except Exception as error:
        if is_of_servers(error):
            raise
        # By itself each is told that is to blame.
        log.debug("%d processes are not applied together (%s)", len(by_process), in_a_line(error))
        return [None for _ in groups]
    effects = {key: _effect(view, key in over) for key, view in views.items()}
    return [effects.get(key) if by_process.get(key := one[0].process_id) is one else None for one in groups]


def _is_plain(together: Sequence[Ended]) -> bool:
    children = sum(len(ended.decision.children) for ended in together)
    return children <= CHILDREN and not any(ended.failed or ended.decision.restarts for ended in together)


def _applied(resources: Resources, groups: Sequence[Sequence[Ended]]) -> dict[str, GraphView]:
    """Write the children, then the graphs: {process: its graph}, of those that may go on."""
    tasks, decisions = [], []
    for ended in (ended for together in groups for ended in together if ended.decision.children):
        made, first = records_of_children(ended.task, ended.decision)
        tasks += made
        decisions += first
    if tasks:
        resources.store.tasks.insert(tasks)
        resources.store.decisions.insert(decisions)
    ended_in = {
        together[0].process_id: (together[0].decision.epoch, [finished_of(ended) for ended in together])
        for together in groups
    }
    views = resources.store.graph_batches.apply(ended_in)
    # Made for a life before this one, perhaps: looked at after they were made, and before anything is enqueued.
    parents = {ended.process_id for together in groups for ended in together if ended.decision.children}
    epochs = resources.store.processes.epochs(parents) if parents else {}
    return {key: view for key, view in views.items() if epochs.get(key, view.epoch) <= view.epoch}


def _ready(together: Sequence[Ended], view: GraphView) -> list[str]:
    ended_now = {ended.task.task_id for ended in together}
    return [record_id(together[0].process_id, task) for task in view.ready if task not in ended_now]


def _effect(view: GraphView | None, is_over: bool) -> Effect | None:
    if view is None or (view.complete and not is_over):
        return None
    return Effect(Applied.NOW, size=0 if view.complete else view.size, complete=view.complete)
