"""Removal of processes that are over.

    ordered → process: being removed (the commit point) → decisions, tasks, what is listed, graph: gone → process: gone

Only what is at rest is removed: nothing of it can become live again, so nobody writes what is being removed. Cut off
anywhere it is found by the process's deadline (REMOVAL_CUT_OFF), and all of it is run again. Whoever is paused half
way, while others end the removal and the process is read back from its export, removes nothing of that: it is of a
later epoch.

That a process is marked is not enough: who may start processes may write them. Its mark names an order, which only
workers and operators can give. A mark by nobody's order is taken off (ORDER_MISSING).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recovery.engine.resources import Resources
from recovery.records import OrderKind, Process, mark_of
from recovery.records.ids import new_pass, record_id

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
