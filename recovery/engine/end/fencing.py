"""Fences the creation and the removal of a process's records.

New records of a process can't be claimed until their creator has checked that the process still exists, in the same
epoch. If it does not, the creator removes the records. This is needed because the creator may pause (for example, its
machine is suspended) after the process was saved or the task ended. Meanwhile other workers may have ended the process,
reported its result and removed it.

    start    Task, Graph, Decision: queued and fresh → does the process exist? → message
    graph    rebuilt from the decisions → does the process exist? → ready tasks are enqueued
    apply    children: Task, Decision: waiting → does the process exist? → enqueued by their graph

Because the check comes after the records are made, either a removal sees the records or the check sees the removal.
Both read the primary with local concern: records that are made on a former primary are rolled back with it. Orders are
read with majority, so before an order is believed absent, the process is read once more. If a creator is cut off before
the check, a fresh decision has no message, and the worker that finds it checks first (MESSAGE_LOST). A waiting decision
is enqueued only by its graph, which is gone.

Removal of ended processes:

    ordered → process: being removed (the commit point) → decisions, tasks, interruptions, graph: gone → process: gone

Only records at rest are removed. They can't become live again, so nobody writes a record that is being removed. If a
removal is cut off anywhere, the process's deadline finds it (REMOVAL_CUT_OFF), and the whole removal runs again. A
worker may pause half way while others finish the removal and the process is restored from its export. It then removes
nothing of the restored process, which has a later epoch. A mark on the process is not enough for a removal, because
every client that starts processes can write them. The mark names an order, and only workers and operators can give
orders. A mark without an order is taken off (ORDER_MISSING).
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

STARTED_BEFORE = "another worker had already started this occurrence of its schedule"


def there(resources: Resources, process_ids: Iterable[str]) -> dict[str, Standing]:
    """Return the processes that exist, with their current state, by process id.

    A process that is being removed is left out if the removal was ordered.
    """
    store = resources.store
    processes = store.processes.standing(process_ids)
    marked = {key: process for key, process in processes.items() if process.mark is not None}
    unordered = marked.keys() - store.orders.standing(process.mark for process in marked.values())
    # An order is deleted when the removal is complete. So both the order and the process may be gone by now.
    reread = store.processes.standing(unordered) if unordered else {}
    unordered = {key for key in unordered if key in reread and reread[key].mark == processes[key].mark}
    return {key: process for key, process in processes.items() if key not in marked or key in unordered}


def gone(resources: Resources, epochs: Mapping[str, int]) -> set[str]:
    """Return the processes that no longer exist, are being removed, or are in another epoch.

    Args:
        resources: Connections.
        epochs: The epoch that records were made for, by process id.
    """
    standing = there(resources, epochs)
    return {key for key, epoch in epochs.items() if key not in standing or standing[key].epoch != epoch}


def withdraw_graphs(resources: Resources, graphs: Iterable[Graph]) -> set[str]:
    """Remove graphs that were just made and whose processes are gone, unless a graph has changed since. Return the ids
    of these processes."""
    epochs = {graph.id: graph.epoch for graph in graphs}
    gone_ids = gone(resources, epochs)
    for key in gone_ids:
        resources.store.graphs.withdraw(key, epochs[key])
    return gone_ids


def withdraw_unwanted(resources: Resources, starts: Mapping[str, int]) -> set[str]:
    """Withdraw the start decisions that were just made for processes that must not run.

    If a process is gone, its new records are removed, as far as they are unchanged. If a schedule started the process
    and knows this occurrence, the decision is noted as verified, because the schedule will forget the occurrence later.
    If the schedule does not know it, the process is aborted and kept: whoever can write processes could have forged the
    reference to the schedule, and the process's state too.

    Args:
        resources: Connections.
        starts: The epoch that the records were made for, by the start task's decision id.

    Returns:
        The decision ids whose processes must not run.
    """
    epochs = {split_record_id(key)[0]: (key, epoch) for key, epoch in starts.items()}
    if not any(starts.values()) and resources.store.processes.count_as_started(epochs) == len(epochs):
        return set()  # the usual case: a count instead of a thousand records
    processes = there(resources, epochs)
    standing = {key: process for key, process in processes.items() if process.epoch == epochs[key][1]}
    for start, epoch in (epochs[key] for key in epochs.keys() - standing.keys()):
        _withdraw(resources, start, epoch)
        log.warning("%s is not run: its process is gone", start)
    unknown = _unknown(resources, standing)
    if unknown:
        resources.store.catch_up(CATCH_UP_TIMEOUT)  # because schedules are read with majority
        unknown = _unknown(resources, {key: standing[key] for key in unknown})
    # Schedules forget their occurrences after some time, so each process is verified once.
    scheduled = [key for key, process in standing.items() if process.scheduled_by is not None and key not in unknown]
    resources.store.decisions.verified(epochs[key][0] for key in scheduled)
    if unknown:
        seen = resources.store.processes.briefs(unknown).values()
        abort_as_seen(
            resources, [process for process in seen if process.epoch == epochs[process.id][1]], STARTED_BEFORE
        )
        log.warning("%d processes are not run, first %s: %s", len(unknown), min(unknown), STARTED_BEFORE)
    return {epochs[key][0] for key in (epochs.keys() - standing.keys()) | unknown}


def _unknown(resources: Resources, standing: Mapping[str, Standing]) -> set[str]:
    """Return the scheduled processes that their schedules do not know.

    If a schedule was removed or can't be read, nobody can tell. Its processes run.
    """
    names = {process.scheduled_by for process in standing.values() if process.scheduled_by is not None}
    schedules = resources.store.schedules.among(names)
    return {
        key
        for key, process in standing.items()
        if process.scheduled_by in schedules and not knows(schedules[process.scheduled_by], key, process.custom_id)
    }


def _withdraw(resources: Resources, start: str, epoch: int) -> None:
    store, process_id = resources.store, split_record_id(start)[0]
    if store.decisions.withdraw(start, epoch):
        store.graphs.withdraw(process_id, epoch)
        store.tasks.withdraw(start, epoch)


CATCH_UP_TIMEOUT = 5.0
"""Maximum seconds to wait until a majority has the latest writes. Normally it has them within milliseconds."""


def remove(resources: Resources, processes: Sequence[Process]) -> set[str]:
    """Remove processes as they were read. A process that is live, or has changed since, is left alone.

    Returns:
        The ids of the removed processes.
    """
    store, key = resources.store, new_pass()
    live = store.removals.live([process.id for process in processes])
    epochs = {process.id: process.epoch for process in processes if process.id not in live}
    store.orders.give(OrderKind.REMOVE, epochs, key, store.now())
    store.removals.begin([*epochs.items()], key, resources.settings.apply_timeout)
    removed = finish_removal(resources, [*epochs])
    store.orders.fulfil(record_id(process_id, key) for process_id in epochs)
    return {*removed}


def being_removed(resources: Resources, processes: Iterable[Process]) -> set[str]:
    """Return the ids of the processes whose removal was ordered. Their records may be incomplete."""
    return {*resources.store.orders.standing(mark_of(process) for process in processes if process.removing)}


def finish_removal(resources: Resources, process_ids: Sequence[str]) -> list[str]:
    """Remove the remaining records of processes whose removal was ordered. Return the ids of these processes. May run
    again."""
    store = resources.store
    begun = store.removals.begun(process_ids)
    orders = store.orders.standing(process.mark for process in begun)
    ordered_processes = [process for process in begun if process.id in orders]
    store.removals.finish(ordered_processes)
    store.orders.fulfil(orders[process.id].id for process in ordered_processes)
    return [process.id for process in ordered_processes]


def take_off_marks(resources: Resources, process_ids: Sequence[str]) -> int:
    """Take the removal mark off processes whose removal nobody ordered.

    If an older worker, which knows no orders, had removed some records, the rest is removed when the removal is ordered
    again.

    Returns:
        The number of processes from which the mark was taken.
    """
    store = resources.store
    store.catch_up(CATCH_UP_TIMEOUT)  # so that the latest orders are seen
    begun = store.removals.begun(process_ids)
    ordered = store.orders.standing(process.mark for process in begun)
    return store.removals.take_off([process for process in begun if process.id not in ordered])
