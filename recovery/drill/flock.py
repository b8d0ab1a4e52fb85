"""The canaries of one drill: they are started, observed, and removed with all of their records.

Canaries of a drill that was killed end by themselves. The next drill removes them.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Sequence

from recovery.drill.canary_actor import DECLINED, LABEL, CanaryKind, Victim, actor_preferences, order, type_preferences
from recovery.drill.sightings import Canary
from recovery.engine import Resources, Starts
from recovery.engine.actors.actor import encode_call
from recovery.engine.end.abort import abort
from recovery.engine.end.fencing import remove
from recovery.errors import BrokerError, DamagedRecord, StoreError, StoreUnavailable
from recovery.records import UNENDED_PROCESSES, Process, ProcessState
from recovery.records.ids import CANARY, START_TASK
from recovery.records.search_names import label_text
from recovery.store import batches

log = logging.getLogger(__name__)

PAGE = 100
"""Canaries that are read at once."""
MAX_LEFT = 10_000
"""Maximum canaries of earlier drills that are searched. A drill that is killed every minute leaves fewer in a day."""
REMOVE_TIMEOUT = 10.0
"""Maximum seconds for the removal. Ended canaries are at rest within moments."""
LOOK_EVERY = 0.1
WHY = "its drill has ended"


class Flock:
    """The canaries of the drill with this id."""

    def __init__(self, resources: Resources, drill: str) -> None:
        self._resources, self._label = resources, label_text(LABEL, drill)
        kind = type_preferences(resources.settings)
        self._type = resources.store.preferences.process_type(kind)
        self.worker_timeout = resources.store.preferences.actor(actor_preferences()).worker_timeout
        """Seconds: the canary actor's worker_timeout, which an operator may have changed."""
        self.canaries: list[Canary] = []

    def start(self, kind: CanaryKind, victim: Victim | None = None, **told: float) -> Canary:
        """Start a canary. Raises ServerUnavailable and StartRefused."""
        argument = order(kind, **({"victim": victim.value} if victim is not None else {}), **told)
        starts = Starts(self._resources, self._type)
        started = starts.start(starts.process(encode_call(CANARY, (argument,), {}).text, labels=(self._label,)))
        canary = Canary(started.id, kind, victim, {}, net=told.get("net", 0.0))
        self.canaries.append(canary)
        return canary

    def look(self) -> bool:
        """Read the canaries that have not ended. Return whether any has changed. Returns False while MongoDB is
        unavailable, because the next look follows soon."""
        try:
            running = [canary for canary in self.canaries if not canary.ended]
            return sum(self._look(batch) for batch in batches(running, PAGE)) > 0
        except StoreUnavailable as error:
            log.debug("canaries not looked at (%s)", error)
            return False

    def _look(self, batch: Sequence[Canary]) -> bool:
        try:
            return self._note(batch)
        except DamagedRecord as error:
            if len(batch) > 1:
                return sum(self._look([single]) for single in batch) > 0
            (canary,) = batch
            canary.error, canary.ended = str(error), True
            return True

    def _note(self, batch: Sequence[Canary]) -> bool:
        store, by_id = self._resources.store, {canary.id: canary for canary in batch}
        # Read before the tasks. Otherwise the tasks of an ended process might have been read before they reached their
        # final state.
        processes = store.processes.committed_briefs(by_id)
        changed = False
        for process_id, decisions in store.decisions.of_processes(list(by_id)):
            for task, decision in decisions.items():
                changed |= by_id[process_id].note(task, decision)
        ended_processes = [process for process in processes.values() if process.state is not ProcessState.RUNNING]
        values = store.process_details.values_of([process.id for process in ended_processes]) if ended_processes else {}
        for process in processes.values():
            by_id[process.id].started = process.started_at
        for process in ended_processes:
            canary = by_id[process.id]
            canary.values = {task: _decoded(text) for task, text in values.get(process.id, {}).items()}
            canary.error = f"{process.error.kind}: {process.error.message}" if process.error is not None else None
            canary.ended = changed = True
        return changed

    def took(self) -> dict[str, int]:
        """Return {worker id: number of ended canaries that it ran}."""
        counts: dict[str, int] = {}
        for canary in self.canaries:
            workers = {value.get("worker", "") for value in (canary.values or {}).values()}
            for worker in {*workers, canary.first_worker or ""} - {""}:
                counts[worker] = counts.get(worker, 0) + 1
        return counts

    def declined(self, canary: Canary) -> str | None:
        """Return why a canary refused to kill, or None."""
        return (canary.values or {}).get(START_TASK, {}).get(DECLINED)

    def remove_old(self) -> int:
        """Remove canaries of drills that were killed: those that should have ended long ago. Return how many were
        removed."""
        now, minimum_age = self._resources.store.now(), 2 * self._type.process_timeout
        old = [
            process
            for process in self._all()
            if process.started_at and (now - process.started_at).total_seconds() > minimum_age
        ]
        return len(self._remove(old)) if old else 0

    def remove(self) -> int:
        """Abort and remove all canaries of this drill. Return how many could not be removed; a later drill removes
        them. Does not raise if a server is unavailable."""
        own_ids, deadline = {canary.id for canary in self.canaries}, time.monotonic() + REMOVE_TIMEOUT
        pause = threading.Event()
        remaining = list(own_ids)
        while remaining and time.monotonic() < deadline:
            try:
                # Also searched by label, because the id of an unconfirmed start is unknown.
                canaries = [
                    process for process in self._all() if process.id in own_ids or self._label in process.labels
                ]
                removed = self._remove(canaries)
                remaining = [process.id for process in canaries if process.id not in removed]
            except (StoreError, BrokerError) as error:
                log.debug("canaries not removed yet (%s)", error)
            if remaining:
                pause.wait(LOOK_EVERY)
        return len(remaining)

    def _all(self) -> list[Process]:
        store = self._resources.store
        ids = store.search.newest(MAX_LEFT, process_type=CANARY)
        return list(store.processes.committed_briefs(ids).values())

    def _remove(self, processes: Iterable[Process]) -> set[str]:
        removed: set[str] = set()
        for batch in batches(processes, PAGE):
            if live_ids := [process.id for process in batch if process.state in UNENDED_PROCESSES]:
                abort(self._resources, live_ids, WHY)
            stored = self._resources.store.processes.committed_briefs([process.id for process in batch])
            removed |= {process.id for process in batch} - stored.keys()
            removed |= remove(self._resources, list(stored.values()))
        return removed


def _decoded(text: str | None) -> dict[str, str]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
