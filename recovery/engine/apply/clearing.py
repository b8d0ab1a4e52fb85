"""Clears the deadlines of applied decisions and complete graphs, many at a time.

Nothing examines a decision again after its deadline is cleared. So a deadline is cleared only once the apply is proven:
a majority of the replica set holds a graph that records the task's end, or holds the process as ended. A failover may
roll back an apply and the writes that followed from it, but nothing that proves it. An unproven decision is checked
again with the next write, until its deadline passes. After that the decision is applied again, which changes nothing.
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
"""Number of decisions that justify a write: clearing them takes two round trips, however many there are."""
PAUSE = 0.1
"""Minimum seconds between two writes. While the majority lags behind, an earlier write would prove little more."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """An applied decision, or a `stale` decision that had nothing to be applied to."""

    id: str
    process_id: str
    task: str
    epoch: int
    restarts: int | None
    stale: bool
    until: float
    """Monotonic time from which other workers may apply the decision again."""


class Clearing:
    """Applied decisions and complete graphs of one pool process, whose deadlines are not cleared yet. Thread-safe."""

    def __init__(self, resources: Resources) -> None:
        self._store, self._patience = resources.store, resources.settings.apply_timeout
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._complete: list[str] = []
        self._written = time.monotonic()

    def note(self, effect: Effect) -> None:
        """Remember the effect of an apply."""
        with self._lock:
            if effect.applied is not Applied.NOT_YET:
                stale, until = effect.applied is Applied.STALE, time.monotonic() + self._patience
                for decision in (ended.decision for ended in effect.group):
                    names = split_record_id(decision.id)
                    self._entries[decision.id] = _Entry(
                        decision.id, *names, decision.epoch, decision.restarts, stale, until
                    )
            if effect.complete:
                self._complete.append(effect.group[0].process_id)

    @property
    def next_due(self) -> float:
        """Return the monotonic time of the next `write`: soon if many entries wait, infinity if none does."""
        if not self.waits:
            return float("inf")
        return self._written + (PAUSE if len(self._entries) >= MANY else self._patience / 4)

    @property
    def waits(self) -> bool:
        """Return whether anything is left to clear."""
        return bool(self._entries or self._complete)

    def write(self) -> None:
        """Clear the deadlines of all entries that are proven by now. Keep the others.

        Raises:
            StoreError: The entries are forgotten. Once their deadlines have passed, they are found applied.
        """
        with self._lock:
            entries, self._entries = self._entries, {}
            complete, self._complete = self._complete, []
            self._written = time.monotonic()
        for page in batches(list(entries.values())):  # entries pile up while the majority lags behind
            for entry in self._clear_deadlines(page):
                del entries[entry.id]
        for process_ids in batches(complete):
            self._store.clear_graph_deadlines(process_ids)
        self._keep(entries.values())

    def _clear_deadlines(self, entries: Sequence[_Entry]) -> list[_Entry]:
        """Clear the deadlines of the proven entries, and return these entries."""
        proven = self._proven(entries)
        by_life: dict[tuple[int, int | None], list[str]] = defaultdict(list)
        for entry in proven:
            by_life[entry.epoch, entry.restarts].append(entry.id)
        for (epoch, restarts), ids in by_life.items():  # must not clear the deadline of a later epoch or restart
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
        live_epochs = self._store.processes.committed_epochs(stale) if stale else {}

        def is_proven(entry: _Entry) -> bool:
            graph = ends.get(entry.process_id)
            if graph is not None and graph.is_over(entry.task, entry.epoch, entry.restarts):
                return True
            return entry.stale and live_epochs.get(entry.process_id) != entry.epoch

        return [entry for entry in entries if is_proven(entry)]
