"""The canaries of one drill: started, looked at, and removed with all of their records.

What a drill leaves, since it was killed, ends by itself; the next one removes it.
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
"""Canaries that are looked at at once."""
MAX_LEFT = 10_000
"""Canaries of earlier drills that are looked for: those of a probe that was killed each minute for a day."""
REMOVE_TIMEOUT = 10.0
"""Seconds that removing takes at most. What has ended is at rest within moments."""
LOOK_EVERY = 0.1
WHY = "its drill has ended"


class Flock:
    """The canaries of the drill with this id."""

    def __init__(self, resources: Resources, drill: str) -> None:
        self._resources, self._label = resources, label_text(LABEL, drill)
        kind = type_preferences(resources.settings)
        self._type = resources.store.preferences.process_type(kind)
        self.worker_timeout = resources.store.preferences.actor(actor_preferences()).worker_timeout
        """Seconds: of the canary, as an operator may have set it."""
        self.canaries: list[Canary] = []

    def start(self, kind: CanaryKind, victim: Victim | None = None, **told: float) -> Canary:
        """Start a canary. Raises ServerUnavailable, StartRefused."""
        said = order(kind, **({"victim": victim.value} if victim is not None else {}), **told)
        starts = Starts(self._resources, self._type)
        started = starts.start(starts.process(encode_call(CANARY, (said,), {}).text, labels=(self._label,)))
        canary = Canary(started.id, kind, victim, {}, net=told.get("net", 0.0))
        self.canaries.append(canary)
        return canary

    def look(self) -> bool:
        """See how far those are that have not ended; whether anything has changed. Where MongoDB is away nothing is
        seen, and the next look is soon."""
        try:
            running = [one for one in self.canaries if not one.ended]
            return sum(self._look(some) for some in batches(running, PAGE)) > 0
        except StoreUnavailable as error:
            log.debug("canaries not looked at (%s)", error)
            return False

    def _look(self, some: Sequence[Canary]) -> bool:
        try:
            return self._note(some)
        except DamagedRecord as error:
            if len(some) > 1:
                return sum(self._look([one]) for one in some) > 0
            (canary,) = some
            canary.error, canary.ended = str(error), True
            return True

    def _note(self, some: Sequence[Canary]) -> bool:
        store, by_id = self._resources.store, {one.id: one for one in some}
        # Before the tasks: of one that has ended then, they are all seen as they are for good.
        processes = store.processes.committed_briefs(by_id)
        changed = False
        for process_id, decisions in store.decisions.of_processes(list(by_id)):
            for task, decision in decisions.items():
                changed |= by_id[process_id].note(task, decision)
        over = [one for one in processes.values() if one.state is not ProcessState.RUNNING]
        values = store.process_details.values_of([one.id for one in over]) if over else {}
        for process in processes.values():
            by_id[process.id].started = process.started_at
        for process in over:
            canary = by_id[process.id]
            canary.values = {task: _decoded(text) for task, text in values.get(process.id, {}).items()}
            canary.error = f"{process.error.kind}: {process.error.message}" if process.error is not None else None
            canary.ended = changed = True
        return changed

    def took(self) -> dict[str, int]:
        """{worker id: how many canaries it was at}, of those that have ended."""
        found: dict[str, int] = {}
        for canary in self.canaries:
            at_it = {value.get("worker", "") for value in (canary.values or {}).values()}
            for worker in {*at_it, canary.first_worker or ""} - {""}:
                found[worker] = found.get(worker, 0) + 1
        return found

    def declined(self, canary: Canary) -> str | None:
        """Why a canary did not kill, if it said so."""
        return (canary.values or {}).get(START_TASK, {}).get(DECLINED)

    def remove_old(self) -> int:
        """Remove what drills have left that were killed: what should have ended by itself long ago. How many."""
        now, least = self._resources.store.now(), 2 * self._type.process_timeout
        old = [p for p in self._all() if p.started_at and (now - p.started_at).total_seconds() > least]
        return len(self._remove(old)) if old else 0

    def remove(self) -> int:
        """End what runs, and remove all canaries of this drill; how many could not be, and are removed by a later
        one. Does not raise for servers that are away."""
        ours, until = {one.id for one in self.canaries}, time.monotonic() + REMOVE_TIMEOUT
        pause = threading.Event()
        left = list(ours)
        while left and time.monotonic() < until:
            try:
                # By label too: of a start that was not confirmed the id is not known.
                found = [one for one in self._all() if one.id in ours or self._label in one.labels]
                gone = self._remove(found)
                left = [one.id for one in found if one.id not in gone]
            except (StoreError, BrokerError) as error:
                log.debug("canaries not removed yet (%s)", error)
            if left:
                pause.wait(LOOK_EVERY)
        return len(left)

    def _all(self) -> list[Process]:
        store = self._resources.store
        ids = store.search.newest(MAX_LEFT, process_type=CANARY)
        return list(store.processes.committed_briefs(ids).values())

    def _remove(self, found: Iterable[Process]) -> set[str]:
        gone: set[str] = set()
        for some in batches(found, PAGE):
            if lives := [one.id for one in some if one.state in UNENDED_PROCESSES]:
                abort(self._resources, lives, WHY)
            seen = self._resources.store.processes.committed_briefs([one.id for one in some])
            gone |= {one.id for one in some} - seen.keys()
            gone |= remove(self._resources, list(seen.values()))
        return gone


def _decoded(text: str | None) -> dict[str, str]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
