"""Redoes tasks of a process, with all tasks that depend on them, in a new epoch of the process.

    ordered → begin (the commit point) → redone tasks: waiting, in the new epoch
    → tasks that they had scheduled: dropped → kept tasks: unchanged, in the new epoch
    → kept tasks that failed: due to be applied again → graph: rebuilt from the decisions → no longer pending
    → enqueue ready tasks

From the first write on, a result of a redone task that was begun before is rejected: the task waits, and its pass is
gone. A kept task that is being worked on continues, because its pass stays valid in the new epoch. Nothing else is done
to the process meanwhile. If a redo is cut off anywhere, the process's deadline finds it (REDO_CUT_OFF), and the whole
redo runs again. `tests/model/redo.py` is its model.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.engine.end.fencing import withdraw_graphs
from recovery.engine.resources import Resources
from recovery.engine.steps import enqueue
from recovery.records import OrderKind, Process, mark_of
from recovery.records.ids import new_pass, record_id
from recovery.rules import graph_of, redo_of


def carry_out(resources: Resources, process_id: str) -> bool:
    """Carry out a redo that was begun for a process. May run again, and several times at once.

    Returns:
        Whether this call completed the redo. False if no redo is pending, if nobody ordered it, or if another worker
        completed it first.

    Raises:
        DamagedRecord: The dependencies of a task can't be read.
    """
    store, redos = resources.store, resources.store.redos
    # Read before the process: no epoch above the process's own has been begun by then.
    epochs = redos.epochs(process_id)
    process = redos.pending(process_id)
    order = store.orders.standing([mark_of(process)]).get(process_id) if process is not None else None
    if process is None or order is None or order.kind is not OrderKind.REDO:
        return False
    epoch, dropped = process.epoch, None
    redos.set_back(process_id, [later for later in epochs if later > epoch], epoch)
    while True:
        plan = redo_of(order.tasks, redos.links([process_id])[process_id])
        redos.put_back(process_id, epoch, plan.again)
        if not redos.drop(process_id, epoch, plan.dropped) and plan.dropped == dropped:
            break
        # Plan again until a pass drops nothing and the plan stays the same. Before the redone tasks were put back and
        # the others dropped, either may have ended and scheduled new tasks.
        dropped = plan.dropped
    redos.forget(process_id, epoch, plan.dropped)
    redos.release(process_id, epoch, plan.again)
    redos.move(process_id, epoch)
    store.interruptions.remove_past(process_id, process.times_reopened)
    decisions = dict(store.decisions.of_processes([process_id])).get(process_id, {})
    # A kept failed task is listed for this life when it is applied again. The new graph has no failed task until then.
    # Otherwise, if the process breaks for another task that is then restarted, the cause of the break would be unknown.
    failed = {
        task: kept.outcome.pass_key for task, kept in decisions.items() if kept.failed and kept.outcome is not None
    }
    redos.fail_again(process_id, epoch, failed)
    graph = graph_of(process, decisions, store.now(), first_look=resources.settings.apply_timeout).evolve(failed={})
    redos.set_graph(graph)
    if withdraw_graphs(resources, [graph]):
        return False  # another worker completed the redo, and the process ended and was removed
    ended = redos.end(process_id, epoch, process.order)
    store.orders.fulfil([order.id])
    # Ready by the graph as it was made here. If another worker was first, these tasks are queued by now, and skipped.
    enqueue(resources, [record_id(process_id, task) for task in graph.not_finished if graph.is_ready(task)])
    return ended


def take_over(resources: Resources, process: Process, tasks: Sequence[str]) -> bool:
    """Order and carry out a redo that was begun by a worker of an older version, which knows no orders, and was cut
    off.

    Args:
        resources: Connections.
        process: The process as it was read.
        tasks: The tasks to redo. The caller knows that somebody wants this.

    Returns:
        Whether this call completed the redo. False if there is nothing to take over, or another worker was first.

    Raises:
        DamagedRecord: The dependencies of a task can't be read.
    """
    store, key = resources.store, new_pass()
    if not process.redo or store.orders.standing([mark_of(process)]):
        return False
    store.orders.give(OrderKind.REDO, {process.id: process.epoch}, key, store.now(), tasks)
    if not store.redos.order(process, key):
        store.orders.fulfil([record_id(process.id, key)])
        return False
    return carry_out(resources, process.id)
