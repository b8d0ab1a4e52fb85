"""All that `recovery show` tells of a process, as it is read from the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from recovery.engine import Resources
    from recovery.errors import DamagedRecord
    from recovery.records import Decision, Process
    from recovery.store.views.process_lookup import CallTexts, TaskLine

RESULT_SHOWN = 200
"""Characters of a result that are shown."""


@dataclass(frozen=True)
class Shown:
    """All that is told of a process."""

    process: Process
    characters: int
    """Of its result, of which `process` has the start."""
    damage: DamagedRecord | None
    """What of the process can't be read, and is left out."""
    lines: Sequence[TaskLine]
    decisions: Mapping[str, Decision]
    links: Mapping[str, Sequence[str]]
    calls: Mapping[str, CallTexts]
    unserved: Mapping[str, str]
    """{actor: why no worker takes its tasks}."""
    pinned: Mapping[str, str]
    """{decision: what it waits for}, of those that are pinned to a version which no live worker runs."""
    now: datetime

    @property
    def is_over(self) -> bool:
        """Whether it has ended, however: a broken one goes on only if an operator restarts it."""
        return self.process.state.value != "running"


def look(resources: Resources, process_id: str, *, whole: bool = False) -> Shown:
    """Read it; texts `whole`, or as much of each as a line may show. Raises ProcessNotFound."""
    from recovery.cli.task_texts import READ
    from recovery.engine.lookup import not_found
    from recovery.health import untaken_tasks, versions

    store = resources.store
    found = store.processes.shown(process_id, 2**31 - 1 if whole else RESULT_SHOWN)
    if found is None:
        raise not_found(resources, process_id)
    details = store.process_details
    # Tasks first: a decision that is read has its task's line then, or belongs to one made since.
    lines, calls = details.task_lines(process_id), details.call_texts(process_id, None if whole else READ)
    decisions, links = details.decisions_of(process_id), details.open_links(process_id)
    # And who serves them last: whoever comes meanwhile makes nothing look lonely.
    actors = {decision.actor for decision in decisions.values()}
    unserved = untaken_tasks.reasons(store.waiting.by_actor(count_served=False, wanted=actors))
    return Shown(
        *found,
        lines,
        decisions,
        links,
        calls,
        unserved,
        versions.pinned_in_vain(resources, decisions.values()),
        store.now(),
    )
