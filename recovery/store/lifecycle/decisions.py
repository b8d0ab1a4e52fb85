"""Updates of the Decision records, as the life of a task needs them.

Each update's filter is the whole condition that it was decided on: state, pass, epoch. What comes back says
which took place. Here is what every task passes: saved, claimed, finished. `undecided_attempts` has what becomes of a
task whose attempt decided nothing, and `requeues` queues again what is overdue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pymongo.collection import Collection

from recovery.errors import DamagedRecord
from recovery.records import Decision, TaskLimit, from_document, to_document
from recovery.records.ids import SEPARATOR
from recovery.store.client import Document
from recovery.store.driver_errors import translated
from recovery.store.expressions import (
    FIRST_QUEUED,
    after,
    by_id,
    literal,
    plus_one,
    record_range,
    record_ranges,
    task_end,
    work_deadline,
)
from recovery.store.lifecycle.decision_queries import DELAYED, FINISHED, QUEUED, WAITING, WORKING
from recovery.store.lifecycle.tasks import insert_missing, there_already
from recovery.store.lifecycle.undecided_attempts import UndecidedAttempts
from recovery.store.record_reading import readable
from recovery.store.splitting import update_each

_CLAIMED = {"outcome": False, "children": False}
"""An undecided task has neither; one that another program put back would bring 16 MB that no attempt looks at."""
_COPIED = frozenset({"call", "attempts", "claimedAt", "refused"})
"""Fields that an attempt can do without: the Task has the call."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A decision that was just queued: what its message needs. One that had its turn already is `first` in line."""

    id: str
    actor: str
    pass_key: str
    queued_at: datetime
    first: bool = False


def queued(decision: Decision) -> Queued:
    """What the message needs of a decision that is queued."""
    assert decision.pass_key is not None and decision.queued_at is not None
    return Queued(decision.id, decision.actor, decision.pass_key, decision.queued_at)


@translated
class Decisions(UndecidedAttempts):
    """The collection `decisions`. `version` returns that of the application in whose name attempts are claimed."""

    def __init__(self, collection: Collection[Document], version: Callable[[], str | None]) -> None:
        super().__init__(collection)
        self._version = version

    def insert(self, decisions: Sequence[Decision]) -> int:
        """Save new decisions, all waiting; those that are there already are left as they are. How many were not.

        Restorable: CHILDREN_MISSING and START_NOT_REGISTERED make them again.
        """
        return insert_missing(self._current, [to_document(decision) for decision in decisions])

    def insert_queued(
        self, decisions: Sequence[Decision], message_timeout: float, task_timeouts: Mapping[str, float]
    ) -> set[str]:
        """Save new decisions as queued since their `queued_at`, under their passes; which were not there.

        An insert does not know the database's clock: those times were read from it. {actor: its task_timeout}.
        """
        documents = []
        for one in decisions:
            assert one.queued_at is not None and one.pass_key is not None, "it is queued since then, under that"
            first_look = min(message_timeout, task_timeouts.get(one.actor) or message_timeout)
            documents.append(
                to_document(one)
                | {
                    "state": QUEUED,
                    "fresh": True,
                    "enqueuedAt": one.queued_at,
                    "recoveryTime": one.queued_at + timedelta(seconds=first_look),
                }
            )
        return {one.id for one in decisions} - {*there_already(self._current, documents)}

    def verified(self, decision_ids: Iterable[str]) -> None:
        """Note that those of these that are queued were looked at, and may be claimed: nobody is to look again."""
        if ids := list(decision_ids):
            self._current.update_many({"_id": {"$in": ids}, "state": QUEUED, "fresh": True}, {"$unset": {"fresh": ""}})

    def withdraw(self, decision_id: str, epoch: int) -> bool:
        """Remove the decision of a start that nobody claimed; False: it is none of those, by now, and is left."""
        made = {"_id": decision_id, "epoch": epoch, "state": QUEUED, "fresh": True}
        return self._current.delete_one(made).deleted_count == 1

    def claim(
        self, actor: str, passes: Mapping[str, str], worker: str, timeout: float, limit: TaskLimit | None = None
    ) -> list[Decision]:
        """queued → working, of those of {decision: pass} of this actor that bring their current pass.

        Their passes are compared with all of these: of those a record has its own or, since it was queued again, one
        that is newer than all of them.

        Restorable: a claim that a failover takes back is queued again, and its message found missing.

        Args:
            actor: Their actor.
            passes: {decision: the pass that its message brought}. Of several, those that are to be claimed alone are
                left as they are.
            worker: The holder of the claims.
            timeout: Seconds to the deadline.
            limit: The actor's `task_timeout`. A task whose time as a whole is over is left as it is.

        Returns:
            What was claimed, as it is then, in the order of `passes`. The message of any other is stale.

        Raises:
            DamagedRecord: The only one can't be read. One of several is told, and left out.
        """
        ours: Document = {"actor": actor, "pass": {"$in": list(passes.values())}}
        guard: Document = {**ours, "state": QUEUED}
        fields, alone = _claimed(worker, timeout, limit, self._version()), len(passes) == 1
        if limit is not None:
            guard["$expr"] = {"$gt": [task_end(limit.seconds), "$$NOW"]}
        if alone:
            return [_claimed_of(one) for one in self._claim_one(next(iter(passes)), guard, fields)]
        # By one update with lists: some 25 µs for each, where an update for each takes 90.
        stages = [{"$set": {**fields, "inBatch": True}}]
        written = update_each(self._current, list(passes), {**guard, "alone": None}, stages)
        if written.whole and not written.count:
            return []
        held: Document = {"_id": {"$in": list(passes)}, **ours, "state": WORKING, "worker": worker, "inBatch": True}
        documents = self._current.find(held, _CLAIMED).hint("_id_")
        found = {one.id: one for one in readable(Decision, documents, _claimed_of)}
        return [found[key] for key in passes if key in found]

    def claim_ready(
        self,
        actor: str,
        ready: Sequence[str],
        epoch: int,
        pass_key: str,
        worker: str,
        timeout: float,
        limit: TaskLimit | None = None,
        *,
        in_batch: bool = False,
    ) -> list[Decision]:
        """waiting → working at once, under one new pass, of those of an actor's ready decisions that have no eta:
        enqueue and claim in one, without a message.

        Not claimed are those that somebody else had first, and those of another epoch: the values in hand are not
        theirs. Nor are those returned that can't be read, which is logged: the task that made them ready goes on.
        Restorable, as both of its parts are. `in_batch`: they are run after others.
        """
        guard: Document = {"actor": actor, "epoch": epoch, "state": WAITING, "eta": None, "delay": None}
        queued_now = {"queuedAt": "$$NOW", "enqueuedAt": FIRST_QUEUED, "pass": pass_key}
        fields = {**_claimed(worker, timeout, limit, self._version()), **queued_now}
        if in_batch:
            fields["inBatch"] = True
        if len(ready) == 1:
            return list(readable(Decision, self._claim_one(ready[0], guard, fields), _claimed_of))
        written = update_each(self._current, ready, guard, [{"$set": fields}])
        if written.whole and not written.count:
            return []
        held: Document = {"_id": {"$in": list(ready)}, "pass": pass_key, "state": WORKING, "worker": worker}
        return list(readable(Decision, self._current.find(held, _CLAIMED).hint("_id_"), _claimed_of))

    def _claim_one(self, key: str, guard: Document, fields: Document) -> list[Document]:
        found = self._current.find_one_and_update(
            {"_id": key, **guard}, [{"$set": fields}], projection=_CLAIMED, return_document=True
        )
        return [found] if found else []

    def finish(self, ended: Sequence[Decision], *, accept_first: bool, worker: str, apply_timeout: float) -> set[str]:
        """→ finished with their outcomes and children, in an acknowledged write: the commit point of each.

        With `accept_first` a value is taken from any attempt since the task was last restarted, while it is undecided;
        without it, and for an error always, only from the holder of the current pass.
        See docs/records.md, 'What may be accepted'.

        Args:
            ended: The decisions as their attempts claimed them, with what they have come to.
            accept_first: See above.
            worker: The holder of the claims.
            apply_timeout: Seconds after which others apply them.

        Returns:
            The ids of those that were accepted; the results of the others are stale. Whoever asks again after a lost
            reply is told of his own.
        """
        by_life: dict[tuple[int, int | None, bool], list[Decision]] = defaultdict(list)
        for one in ended:
            assert one.outcome is not None, "it has ended"
            by_life[one.epoch, one.restarts, one.outcome.error is None].append(one)
        accepted: set[str] = set()
        for (epoch, restarts, has_value), alike in by_life.items():
            passes = alike[0].pass_key if len(alike) == 1 else {"$in": [one.pass_key for one in alike]}
            guard = _may_finish(passes, epoch, restarts, accept_first and has_value)
            stages = _finished(alike, worker, apply_timeout, self._version())
            # What can't be written stays as it is: at its deadline it is seen to, by itself.
            pass_over = (lambda _: None) if len(alike) > 1 else None
            written = update_each(self._committed, [one.id for one in alike], guard, stages, pass_over)
            if written.whole and written.count == len(alike):
                accepted |= {one.id for one in alike}
            else:
                accepted |= self._taken(alike)
        return accepted

    def counts(self, process_ids: Sequence[str]) -> dict[str, int]:
        """{process: how many decisions there are of it, whether they can be read or not}. Index `_id`, one range for
        each process, and nothing but it: 0.3 ms for one, and 20 ms for one of a hundred thousand."""
        if not process_ids:
            return {}
        if len(process_ids) == 1:
            return {process_ids[0]: self._current.count_documents(record_range(process_ids[0]), hint="_id_")}
        of_them: Document = {"$match": record_ranges(process_ids)}
        process: Document = {"$arrayElemAt": [{"$split": ["$_id", SEPARATOR]}, 0]}
        stages = [of_them, {"$project": {"_id": True}}, {"$group": {"_id": process, "count": {"$sum": 1}}}]
        found = {one["_id"]: one["count"] for one in self._current.aggregate(stages, hint="_id_")}
        return {process_id: found.get(process_id, 0) for process_id in process_ids}

    def _taken(self, ended: Sequence[Decision]) -> set[str]:
        """Those that these outcomes were accepted of: now, or before and the reply was lost. A majority has them by
        now: the update before this waited for that, even if it matched nothing (`catch_up`)."""
        passes = {one.id: one.outcome.pass_key for one in ended if one.outcome is not None}
        taken = {"_id": {"$in": list(passes)}, "outcome.pass": {"$in": list(passes.values())}}
        found = self._committed.find(taken, {"outcome.pass": True}).hint("_id_")
        return {one["_id"] for one in found if one["outcome"]["pass"] == passes[one["_id"]]}


def _claimed(worker: str, timeout: float, limit: TaskLimit | None, version: str | None) -> Document:
    """The fields that a claim sets. `version` is that of the worker's application."""
    return {
        **_of_version(version),
        "state": WORKING,
        "worker": literal(worker),
        "claimedAt": "$$NOW",
        "attempts": plus_one("attempts"),
        "fresh": "$$REMOVE",
        "recoveryTime": work_deadline(timeout, limit),
    }


def _of_version(version: str | None) -> Document:
    """The field that records which version of the application runs an attempt, or ran it; none if nobody knows."""
    return {} if version is None else {"version": literal(version)}


def _may_finish(pass_key: str | Document | None, epoch: int, restarts: int | None, accept_first: bool) -> Document:
    """Whose result is taken: of who has the pass, or one of them; or, with `accept_first`, of any attempt of this life
    (docs/records.md, 'What may be accepted')."""
    # Who has the pass has it in any epoch: what is kept where others are done again goes on.
    guard: Document = {"state": WORKING, "pass": pass_key}
    if not accept_first:
        return guard
    life = {"epoch": epoch, "restarts": restarts}
    return {"$or": [guard, {**life, "state": {"$in": [WORKING, QUEUED, DELAYED]}}]}


def _finished(ended: Sequence[Decision], worker: str, apply_timeout: float, version: str | None) -> list[Document]:
    """The stages of the update that finishes these decisions, each with its own outcome and children. The version is
    set anew: the result may be that of an attempt before the last claim."""
    outcomes = {one.id: to_document(one.outcome) for one in ended if one.outcome is not None}
    children = {one.id: [to_document(child) for child in one.children] for one in ended}
    fields = {
        **_of_version(version),
        "state": FINISHED,
        "outcome": {"$mergeObjects": [by_id(outcomes), {"finishedAt": "$$NOW"}]},
        "children": by_id(children) if any(children.values()) else literal([]),
        "recoveryTime": after(apply_timeout),
        "worker": literal(worker),
    }
    if any(_retried_in_place(one) for one in ended):
        fields["retry"] = {"$ifNull": [by_id({one.id: _retried_in_place(one) for one in ended}), "$retry"]}
    stages: list[Document] = [{"$set": fields}]
    return [*stages, {"$unset": "inBatch"}] if any(one.in_batch for one in ended) else stages


def _retried_in_place(decision: Decision) -> Document | None:
    """Return the retries that an attempt has made in its slot, which no write has counted yet."""
    retry = decision.retry
    return to_document(retry) if retry is not None and retry.pass_key == decision.pass_key else None


def _claimed_of(document: Document) -> Decision:
    """Return the decision of a document that was read with `_CLAIMED`, without damaged `_COPIED` fields."""
    try:
        return from_document(Decision, document)
    except DamagedRecord as damage:
        if not _COPIED.issuperset(damage.fields):
            raise
        return from_document(Decision, {key: value for key, value in document.items() if key not in damage.fields})
