"""Restart of what failed in many broken processes at once: a batch costs about as many round trips as one process.

What is found of a process while it is still as it was seen belongs to that life of it. Whoever else restarts it first
leaves nothing to be done here, and a task that fails in the next life is not queued again by who was late.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.engine.apply.rebuild import rebuild_graphs
from recovery.engine.apply.reopen import reopen, reopen_whole
from recovery.engine.isolation import batch_or_each
from recovery.engine.operators.restart import Restarts, restart_tasks
from recovery.engine.resources import Resources
from recovery.records import DecisionState, Process
from recovery.records.ids import record_id, split_record_id
from recovery.store import Restarted


def restart_many(resources: Resources, seen: Sequence[Process]) -> Restarts:
    """Restart what failed in these processes, which were broken, and that of which whoever restarted it was cut off;
    set running those that broke as a whole. A process that is not as it was seen is left alone, and so is one that has
    nothing to be restarted. Raises DamagedRecord where one can't be read."""
    store = resources.store
    if lost := store.graphs.absent([process.id for process in seen]):
        batch_or_each(sorted(lost), lambda some: len(rebuild_graphs(resources, some)))  # they tell what failed
    # Before it is asked what has failed: what fails from then on stays listed.
    listed = {one.id: one.restarts for one in store.interruptions.of_processes([process.id for process in seen])}
    failed = store.restarts.failed([process.id for process in seen])
    keys = [record_id(process_id, task) for process_id, tasks in failed.items() for task in tasks]
    decisions = store.decisions.briefs(keys).values() if keys else ()
    same = _unchanged(resources, seen)
    whole = [process for key, process in same.items() if key not in failed]
    theirs = {key: restarts for key, restarts in listed.items() if split_record_id(key)[0] not in failed}
    done = Restarts(processes=reopen_whole(resources, whole, theirs))
    ours = [decision for decision in decisions if decision.process_id in same]
    cut_off = [one for one in ours if one.restarts and one.state is not DecisionState.FINISHED]
    again = [Restarted(one.id, one.restarts or 0, one.epoch) for one in cut_off]
    done += Restarts(processes=reopen(resources, again, same))
    wanted = {one.id: one.restarts or 0 for one in ours if one.failed}
    return done + restart_tasks(resources, wanted) if wanted else done


def _unchanged(resources: Resources, seen: Sequence[Process]) -> dict[str, Process]:
    now = resources.store.processes.briefs([process.id for process in seen])
    return {one.id: now[one.id] for one in seen if one.id in now and now[one.id].is_as(one)}
