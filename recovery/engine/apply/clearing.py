"""Takes the deadlines off decisions whose effects have reached their graph, and off complete graphs: for many at once.

Nobody looks at a decision again that has no deadline. So it is taken off only for what is proven: the graph that a
majority has knows how the task ended, or the process that a majority has is over. A failover may take back an apply,
and what was written because of it; it takes back nothing that proves this. What is not proven yet waits for the next
time, while its deadline stands; from then on it is applied again, which changes nothing.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recovery.engine.apply.apply import Effect
from recovery.engine.resources import Resources
from recovery.engine.steps import Applied
from recovery.records.ids import split_record_id
from recovery.store import batches

MANY = 64
"""Decisions that are worth to be written: two round trips for all of them."""
PAUSE = 0.1
"""Seconds between two writes, at least: while the majority lags behind little is proven by the next."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A decision that was applied, or that is `stale`: there was nothing to apply it to."""

    id: str
    process_id: str
    task: str
    epoch: int
    restarts: int | None
    stale: bool
    until: float
    """From when on others apply it again."""


class Clearing:
    """What one process of a worker has applied, and not yet cleared. Safe for threads."""

    def __init__(self, resources: Resources) -> None:
        self._store, self._patience = resources.store, resources.settings.apply_timeout
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._complete: list[str] = []
        self._written = time.monotonic()

    def note(self, effect: Effect) -> None:
        """Remember what an apply did."""
        with self._lock:
            if effect.applied is not Applied.NOT_YET:
                stale, until = effect.applied is Applied.STALE, time.monotonic() + self._patience
                for one in (ended.decision for ended in effect.group):
                    names = split_record_id(one.id)
                    self._entries[one.id] = _Entry(one.id, *names, one.epoch, one.restarts, stale, until)
            if effect.complete:
                self._complete.append(effect.group[0].process_id)

    @property
    def next_due(self) -> float:
        """When it is time to `write`, by the monotonic clock: soon if there is much to write."""
        if not self.waits:
            return float("inf")
        return self._written + (PAUSE if len(self._entries) >= MANY else self._patience / 4)

    @property
    def waits(self) -> bool:
        """Whether there is something to write."""
        return bool(self._entries or self._complete)

    def write(self) -> None:
        """Clear what is proven by now. Raises StoreError; then what there was is forgotten, and found applied when
        it is overdue."""
        with self._lock:
            entries, self._entries = self._entries, {}
            complete, self._complete = self._complete, []
            self._written = time.monotonic()
        for some in batches(list(entries.values())):  # many, while the majority lags behind
            for entry in self._clear_deadlines(some):
                del entries[entry.id]
        for over in batches(complete):
            self._store.clear_graph_deadlines(over)
        self._keep(entries.values())

    def _clear_deadlines(self, entries: Sequence[_Entry]) -> list[_Entry]:
        """Clear those of these that are proven; which they were."""
        proven = self._proven(entries)
        by_life: dict[tuple[int, int | None], list[str]] = defaultdict(list)
        for entry in proven:
            by_life[entry.epoch, entry.restarts].append(entry.id)
        for (epoch, restarts), ids in by_life.items():  # what is true of one life must not put a later one to rest
            self._store.decisions.clear_deadlines(ids, epoch, restarts)
        return proven

    def _keep(self, unproven: Iterable[_Entry]) -> None:
        now = time.monotonic()
        with self._lock:
            for entry in unproven:
                if entry.until > now:
                    self._entries.setdefault(entry.id, entry)

    def _proven(self, entries: Sequence[_Entry]) -> list[_Entry]:
        tasks: dict[str, list[str]] = defaultdict(list)
        for entry in entries:
            tasks[entry.process_id].append(entry.task)
        ends = self._store.graphs.committed_ends(tasks) if tasks else {}
        stale = [entry.process_id for entry in entries if entry.stale]
        going_on = self._store.processes.committed_epochs(stale) if stale else {}

        def is_proven(entry: _Entry) -> bool:
            graph = ends.get(entry.process_id)
            if graph is not None and graph.is_over(entry.task, entry.epoch, entry.restarts):
                return True
            return entry.stale and going_on.get(entry.process_id) != entry.epoch

        return [entry for entry in entries if is_proven(entry)]
