"""Tasks of a process done again, with all that depends on them, in a new epoch of it.

    ordered → begin (the commit point) → what is done again: waiting, in the new epoch
    → what that had scheduled: dropped → what is kept: in the new epoch, as it is
    → what of that has failed: to be applied again → graph: made anew from the decisions → not pending
    → enqueue what is ready

From the first on no result of what is done again is taken that was begun before: it waits, and its pass is gone. What
is kept and is being worked on goes on: who has the pass has it in the new epoch as well. Nothing else is done about the
process meanwhile, and cut off anywhere it is found by its deadline (REDO_CUT_OFF), and all of it is run again.
`tests/model/redo.py` is its model.
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
    """Carry out what was begun for a process; False if there is nothing to be, if nobody has ordered it, or others were
    first. May be run again, and by several at once. Raises DamagedRecord where what depends on what can't be read."""
    store, redos = resources.store, resources.store.redos
    there = redos.epochs(process_id)  # before the process: of those above its own nobody has begun one by then
    process = redos.pending(process_id)
    order = store.orders.standing([mark_of(process)]).get(process_id) if process is not None else None
    if process is None or order is None or order.kind is not OrderKind.REDO:
        return False
    epoch, dropped = process.epoch, None
    redos.set_back(process_id, [one for one in there if one > epoch], epoch)
    while True:
        plan = redo_of(order.tasks, redos.links([process_id])[process_id])
        redos.put_back(process_id, epoch, plan.again)
        if not redos.drop(process_id, epoch, plan.dropped) and plan.dropped == dropped:
            break
        # Looked at again, even where nothing was to be dropped: until they were put back, those that are done again may
        # have ended and scheduled others, and so may what is dropped.
        dropped = plan.dropped
    redos.forget(process_id, epoch, plan.dropped)
    redos.release(process_id, epoch, plan.again)
    redos.move(process_id, epoch)
    store.interruptions.remove_past(process_id, process.times_reopened)
    decisions = dict(store.decisions.of_processes([process_id])).get(process_id, {})
    # It is listed for this life when it is applied in it. Until then nothing has failed: of a process that broke for
    # another task, which is restarted, nobody would learn what it is broken for.
    failed = {task: one.outcome.pass_key for task, one in decisions.items() if one.failed and one.outcome is not None}
    redos.fail_again(process_id, epoch, failed)
    graph = graph_of(process, decisions, store.now(), first_look=resources.settings.apply_timeout).evolve(failed={})
    redos.set_graph(graph)
    if withdraw_graphs(resources, [graph]):
        return False  # others have carried it out, and it ended and was removed
    ended = redos.end(process_id, epoch, process.order)
    store.orders.fulfil([order.id])
    # Of the graph as it was made: where somebody else was first, those are queued by now, and left alone.
    enqueue(resources, [record_id(process_id, task) for task in graph.not_finished if graph.is_ready(task)])
    return ended


def take_over(resources: Resources, process: Process, tasks: Sequence[str]) -> bool:
    """Order and carry out what was begun for a process, as it was seen, by a worker that knows no orders and was cut
    off. The caller knows that somebody wants these tasks done again. False where there is nothing to be taken over, or
    somebody else was first. Raises DamagedRecord."""
    store, key = resources.store, new_pass()
    if not process.redo or store.orders.standing([mark_of(process)]):
        return False
    store.orders.give(OrderKind.REDO, {process.id: process.epoch}, key, store.now(), tasks)
    if not store.redos.order(process, key):
        store.orders.fulfil([record_id(process.id, key)])
        return False
    return carry_out(resources, process.id)
