"""Updates of Decision records that one slot has in hand together: claimed at once, finished at once.

What differs from record to record stands in one update as a list, by their ids: some 25 µs for each, where an update
for each takes 90. Their conditions are those of one (`decision_updates`): each record is compared with what it was
decided from. Their passes are compared with all of the batch's: of those a record has its own or, since it was queued
again, one that is newer than all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from pymongo.collection import Collection

from recovery.records import Decision, DecisionState, Outcome, TaskLimit, to_document
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import by_id, literal, task_end
from recovery.store.lifecycle.decision_updates import (
    CLAIMED,
    QUEUED,
    WAITING,
    WORKING,
    claimed,
    claimed_of,
    claimed_ready,
    finish,
    may_finish,
)
from recovery.store.record_reading import readable
from recovery.store.splitting import update_each


@translated
class DecisionBatches:
    """Updates of batches in the collection `decisions`. `version` is as of `Decisions`."""

    def __init__(self, collection: Collection[Document], version: Callable[[], str | None]) -> None:
        self._version = version
        self._current, self._committed = current(collection), committed(collection)

    def claim(
        self, actor: str, passes: Mapping[str, str], worker: str, timeout: float, limit: TaskLimit | None = None
    ) -> list[Decision]:
        """queued → working, of those of {decision: pass} of this actor that bring their current pass, as claimed; in
        the order of `passes`. Left as they are: what is to be claimed alone, and whose time as a whole is over.

        Restorable, as a claim of one is.
        """
        ours: Document = {"pass": {"$in": list(passes.values())}, "actor": actor}
        guard: Document = {**ours, "state": QUEUED, "alone": None}
        if limit is not None:
            guard["$expr"] = {"$gt": [task_end(limit.seconds), "$$NOW"]}
        stages = [{"$set": {**claimed(worker, timeout, limit, self._version()), "inBatch": True}}]
        written = update_each(self._current, list(passes), guard, stages)
        if written.whole and not written.count:
            return []
        held: Document = {"_id": {"$in": list(passes)}, **ours, "state": WORKING, "worker": worker, "inBatch": True}
        found = {one.id: one for one in readable(Decision, self._current.find(held, CLAIMED).hint("_id_"), claimed_of)}
        return [found[key] for key in passes if key in found]

    def claim_ready(
        self,
        actor: str,
        ready: Mapping[str, Decision | None],
        epoch: int,
        pass_key: str,
        worker: str,
        timeout: float,
        limit: TaskLimit | None = None,
    ) -> list[Decision]:
        """waiting → working at once, under one new pass, of those of {ready decision: as it was first written, if that
        is known} of this actor that have no eta; as claimed, but for the times where that is known.

        Restorable, as `Decisions.claim_ready` is.
        """
        guard: Document = {"actor": actor, "epoch": epoch, "state": WAITING, "eta": None, "delay": None}
        fields = {**claimed_ready(worker, timeout, limit, self._version()), "pass": pass_key, "inBatch": True}
        written = update_each(self._current, list(ready), guard, [{"$set": fields}])
        if written.whole and not written.count:
            return []
        known = [one for one in ready.values() if one is not None]
        if written.whole and written.count == len(ready) == len(known):
            ours = {"state": DecisionState.WORKING, "pass_key": pass_key, "worker": worker, "in_batch": True}
            return [one.evolve(**ours, attempts=one.attempts + 1) for one in known]
        held: Document = {"_id": {"$in": list(ready)}, "pass": pass_key, "state": WORKING, "worker": worker}
        return list(readable(Decision, self._current.find(held, CLAIMED).hint("_id_"), claimed_of))

    def finish(
        self,
        ended: Sequence[tuple[Decision, Outcome]],
        *,
        accept_first: bool,
        worker: str,
        apply_timeout: float,
    ) -> set[str]:
        """→ finished with values, and the children that stand in the decisions: the ids of those that were accepted.
        The commit point of each.

        As `Decisions.finish`, whoever asks again after a lost reply is told of his own.
        """
        by_life: dict[tuple[int, int | None], list[tuple[Decision, Outcome]]] = defaultdict(list)
        for one, outcome in ended:
            by_life[one.epoch, one.restarts].append((one, outcome))
        accepted: set[str] = set()
        for (epoch, restarts), alike in by_life.items():
            passes = {"$in": [one.pass_key for one, _ in alike]}
            outcomes = {one.id: to_document(outcome) for one, outcome in alike}
            children = {one.id: [to_document(child) for child in one.children] for one, _ in alike}
            scheduled = by_id(children) if any(children.values()) else literal([])
            guard = may_finish(passes, epoch, restarts, accept_first)
            stages = finish(by_id(outcomes), scheduled, worker, apply_timeout, self._version(), in_batch=True)
            # What can't be written stays as it is: at its deadline it is seen to, by itself.
            written = update_each(self._committed, list(outcomes), guard, stages, pass_over=lambda _: None)
            if written.whole and written.count == len(alike):
                accepted |= outcomes.keys()
            else:
                accepted |= self._taken({one.id: outcome for one, outcome in alike})
        return accepted

    def _taken(self, outcomes: Mapping[str, Outcome]) -> set[str]:
        """Those that these outcomes were accepted of: now, or before and the reply was lost. The update before this
        waited for a majority (`Decisions.finish`)."""
        passes = {key: outcome.pass_key for key, outcome in outcomes.items()}
        taken = {"_id": {"$in": list(passes)}, "outcome.pass": {"$in": list(passes.values())}}
        found = self._committed.find(taken, {"outcome.pass": True}).hint("_id_")
        return {one["_id"] for one in found if one["outcome"]["pass"] == passes[one["_id"]]}
