"""Record restarts of failed tasks in the history of their process: who restarted them, why, and how the process was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recovery.engine.resources import Resources
from recovery.records import Life, Process
from recovery.records.ids import split_record_id

NOTED = 20
"""Maximum number of tasks that one entry of the history names."""


@dataclass(frozen=True, slots=True)
class Restarter:
    """Who restarts tasks, and why."""

    by: str
    reason: str = ""
    operation: int | None = None
    """The number of the operation that restarts the tasks, or None."""


def note_restarts(
    resources: Resources, seen: Mapping[str, Process], restarted: Iterable[str], restarter: Restarter
) -> None:
    """Add a restart to the histories of processes.

    Args:
        resources: The connections.
        seen: {process id: the process before the restart}.
        restarted: Record ids: `P/T` for a restarted task, `P/` for a process that is restarted as a whole.
        restarter: Who restarts, and why.
    """
    tasks: dict[str, list[str]] = defaultdict(list)
    for key in restarted:
        process_id, task = split_record_id(key)
        tasks[process_id] += [task] if task else []
    if not tasks:
        return
    now = resources.store.now()
    resources.store.restarts.note_restarts(
        {
            process_id: Life(
                epoch=seen[process_id].epoch,
                state=seen[process_id].state,
                tasks=tuple(sorted(names)[:NOTED]),
                by=restarter.by,
                reason=restarter.reason,
                ended_at=now,
                operation=restarter.operation,
                error=error.evolve(stack=None) if (error := seen[process_id].error) is not None else None,
            )
            for process_id, names in tasks.items()
        }
    )
