"""Removal of processes that are over.

    process: being removed (the commit point) → decisions, tasks, what is listed, graph: gone → process: gone

Only what is at rest is removed: nothing of it can become live again, so nobody writes what is being removed. Cut off
anywhere it is found by the process's deadline (REMOVAL_CUT_OFF), and all of it is run again. Whoever is paused half
way, while others end the removal and the process is read back from its export, removes nothing of that: it is of a
later epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.engine.resources import Resources
from recovery.records import Process


def remove(resources: Resources, processes: Sequence[Process]) -> set[str]:
    """Remove these processes, as they were seen; which of them are gone. One that is live, or has changed since, is
    left alone."""
    removals = resources.store.removals
    live = removals.live([process.id for process in processes])
    seen = [(process.id, process.epoch) for process in processes if process.id not in live]
    begun = removals.begin(seen, resources.settings.apply_timeout)
    removals.finish(begun)
    return {one.id for one in begun}


def finish_removal(resources: Resources, process_ids: Sequence[str]) -> list[str]:
    """Remove what is left of those of these processes that are being removed; which they are. May be run again."""
    removals = resources.store.removals
    begun = removals.begun(process_ids)
    removals.finish(begun)
    return [one.id for one in begun]
