"""Creation is fenced, as removal is: new records of a process can't be claimed until their creator has seen that the
process is there, and in the same epoch; otherwise he removes them.

Whoever makes them may have stood still (its machine was suspended, say) since the process was saved or the task ended.
Others went on meanwhile: the process ended, its result was told, it was removed.

    start    Task, Graph, Decision: queued, and fresh → is the process there? → message
    graph    made anew from the decisions → is the process there? → what is ready is enqueued
    apply    children: Task, Decision: waiting → is the process there? → enqueued, by its graph

The look comes after the records were made, so a removal either sees them or is seen. Both are of the primary, and by
its own word: what is made on one that is none any more is gone with it. Orders are read as a majority has them, and
before they are believed to be none the process is looked at once more. Cut off before the look, a fresh decision has
no message; who finds that looks first (MESSAGE_LOST). What waits is enqueued by the graph alone, which is gone.

Removal of processes that are over:

    ordered → process: being removed (the commit point) → decisions, tasks, what is listed, graph: gone → process: gone

Only what is at rest is removed: nothing of it can become live again, so nobody writes what is being removed. Cut off
anywhere it is found by the process's deadline (REMOVAL_CUT_OFF), and all of it is run again. Whoever is paused half
way, while others end the removal and the process is read back from its export, removes nothing of that: it is of a
later epoch. That a process is marked is not enough: who may start processes may write them. Its mark names an order,
which only workers and operators can give. A mark by nobody's order is taken off (ORDER_MISSING).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from recovery.engine.end.abort import abort_as_seen
from recovery.engine.resources import Resources
from recovery.records import Graph, OrderKind, Process, mark_of
from recovery.records.ids import new_pass, record_id, split_record_id
from recovery.schedule import knows
from recovery.store.lifecycle.processes import Standing

log = logging.getLogger(__name__)

STARTED_BEFORE = "its schedule had this occurrence started before, by somebody else"


def there(resources: Resources, process_ids: Iterable[str]) -> dict[str, Standing]:
    """Those of these processes that are there, as they are now. One that is being removed is not, if somebody who may
    has ordered that."""
    store = resources.store
    found = store.processes.standing(process_ids)
    marked = {key: one for key, one in found.items() if one.mark is not None}
    unordered = marked.keys() - store.orders.standing(one.mark for one in marked.values())
    # An order goes once all is removed, so it may be none by now, and so may the process.
    again = store.processes.standing(unordered) if unordered else {}
    unordered = {key for key in unordered if key in again and again[key].mark == found[key].mark}
    return {key: one for key, one in found.items() if key not in marked or key in unordered}


def gone(resources: Resources, epochs: Mapping[str, int]) -> set[str]:
    """Those of {process: the epoch that its records were made for} that are not there any more, or are just being
    removed, or are of another epoch by now."""
    standing = there(resources, epochs)
    return {key for key, epoch in epochs.items() if key not in standing or standing[key].epoch != epoch}


def withdraw_graphs(resources: Resources, graphs: Iterable[Graph]) -> set[str]:
    """Remove those of these graphs, which were just made anew, whose processes are gone, as far as they are as they
    were made. Which those processes are."""
    made = {graph.id: graph.epoch for graph in graphs}
    away = gone(resources, made)
    for key in away:
        resources.store.graphs.withdraw(key, made[key])
    return away


def withdraw_unwanted(resources: Resources, starts: Mapping[str, int]) -> set[str]:
    """Bring to rest what was just made for {start task's decision: the epoch that it was made for} of processes that
    nobody is to run. Which those decisions are.

    Where the process is gone it is removed, as far as it is as it was made. An occurrence that its schedule knows is
    noted as verified: later it would not know it any more. One that it does not know is aborted, and stays: what it
    says of its schedule anybody may have written who may write processes, and so may they its state.
    """
    epochs = {split_record_id(key)[0]: (key, epoch) for key, epoch in starts.items()}
    if not any(starts.values()) and resources.store.processes.count_as_started(epochs) == len(epochs):
        return set()  # as almost always: a number instead of a thousand records
    found = there(resources, epochs)
    standing = {key: one for key, one in found.items() if one.epoch == epochs[key][1]}
    for key, epoch in (epochs[one] for one in epochs.keys() - standing.keys()):
        _withdraw(resources, key, epoch)
        log.warning("%s is not run: its process is gone", key)
    unknown = _unknown(resources, standing)
    if unknown:
        resources.store.catch_up(CATCH_UP_TIMEOUT)  # a schedule is read as a majority has it
        unknown = _unknown(resources, {key: standing[key] for key in unknown})
    # Schedules forget in time what they have started, so they are asked once.
    scheduled = [key for key, one in standing.items() if one.scheduled_by is not None and key not in unknown]
    resources.store.decisions.verified(epochs[key][0] for key in scheduled)
    if unknown:
        seen = resources.store.processes.briefs(unknown).values()
        abort_as_seen(resources, [one for one in seen if one.epoch == epochs[one.id][1]], STARTED_BEFORE)
        log.warning("%d processes are not run, first %s: %s", len(unknown), min(unknown), STARTED_BEFORE)
    return {epochs[key][0] for key in (epochs.keys() - standing.keys()) | unknown}


def _unknown(resources: Resources, standing: Mapping[str, Standing]) -> set[str]:
    """Those of these that are scheduled, and that their schedules do not know. Of a schedule that was removed,
    or that can't be read, nobody can tell: its processes run."""
    names = {one.scheduled_by for one in standing.values() if one.scheduled_by is not None}
    schedules = resources.store.schedules.among(names)
    return {
        key
        for key, one in standing.items()
        if one.scheduled_by in schedules and not knows(schedules[one.scheduled_by], key, one.custom_id)
    }


def _withdraw(resources: Resources, start: str, epoch: int) -> None:
    store, process_id = resources.store, split_record_id(start)[0]
    if store.decisions.withdraw(start, epoch):
        store.graphs.withdraw(process_id, epoch)
        store.tasks.withdraw(start, epoch)


CATCH_UP_TIMEOUT = 5.0
"""Seconds in which a majority is to have what was written a moment ago; mostly it has within milliseconds."""


def remove(resources: Resources, processes: Sequence[Process]) -> set[str]:
    """Remove these processes, as they were seen; which of them are gone. One that is live, or has changed since, is
    left alone."""
    store, key = resources.store, new_pass()
    live = store.removals.live([process.id for process in processes])
    epochs = {process.id: process.epoch for process in processes if process.id not in live}
    store.orders.give(OrderKind.REMOVE, epochs, key, store.now())
    store.removals.begin([*epochs.items()], key, resources.settings.apply_timeout)
    gone = finish_removal(resources, [*epochs])
    store.orders.fulfil(record_id(one, key) for one in epochs)
    return {*gone}


def being_removed(resources: Resources, processes: Iterable[Process]) -> set[str]:
    """Those of these that are being removed, by somebody's order: perhaps they are not whole any more."""
    return {*resources.store.orders.standing(mark_of(one) for one in processes if one.removing)}


def finish_removal(resources: Resources, process_ids: Sequence[str]) -> list[str]:
    """Remove what is left of those of these processes that are being removed by somebody's order; which they are. May
    be run again."""
    store = resources.store
    begun = store.removals.begun(process_ids)
    ordered = store.orders.standing(one.mark for one in begun)
    ours = [one for one in begun if one.id in ordered]
    store.removals.finish(ours)
    store.orders.fulfil(ordered[one.id].id for one in ours)
    return [one.id for one in ours]


def take_off_marks(resources: Resources, process_ids: Sequence[str]) -> int:
    """Take the mark off those of these processes that are marked to be removed, and that nobody has ordered to be; from
    how many. Of what a worker had removed that knows no orders, the rest is removed when that is ordered again."""
    store = resources.store
    store.catch_up(CATCH_UP_TIMEOUT)  # of an order that was given a moment ago a majority may know nothing yet
    begun = store.removals.begun(process_ids)
    ordered = store.orders.standing(one.mark for one in begun)
    return store.removals.take_off([one for one in begun if one.id not in ordered])
