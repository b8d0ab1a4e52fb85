"""Updates of the Decision records that every task passes: saved, claimed, finished.

Each update is a compare-and-set: its filter repeats the whole condition that it was decided on (state, pass, epoch).
The return value says which decisions changed. `undecided_attempts` handles attempts that end without a result;
`requeues` queues overdue tasks again.
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
"""Projection of a claimed decision. An unfinished decision normally has neither field. If another program left them
there, they may take 16 MB that no attempt reads.
"""
_COPIED = frozenset({"call", "attempts", "claimedAt", "refused"})
"""Fields that an attempt can do without if they are damaged. The Task record has the call as well."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A decision that was just queued: what its message needs."""

    id: str
    actor: str
    pass_key: str
    queued_at: datetime
    first: bool = False
    """Whether the message goes to the head of the queue, because the task had its turn already."""


def queued(decision: Decision) -> Queued:
    """Return what the message of a queued decision needs."""
    assert decision.pass_key is not None and decision.queued_at is not None
    return Queued(decision.id, decision.actor, decision.pass_key, decision.queued_at)


@translated
class Decisions(UndecidedAttempts):
    """The collection `decisions`. `version` returns the version of the application that claims attempts."""

    def __init__(self, collection: Collection[Document], version: Callable[[], str | None]) -> None:
        super().__init__(collection)
        self._version = version

    def insert(self, decisions: Sequence[Decision]) -> int:
        """Save new decisions, all in the state waiting. Return how many did not exist yet.

        Existing decisions are not changed. Written to the primary alone: after a failover CHILDREN_MISSING and
        START_NOT_REGISTERED save them again.
        """
        return insert_missing(self._current, [to_document(decision) for decision in decisions])

    def insert_queued(
        self, decisions: Sequence[Decision], message_timeout: float, task_timeouts: Mapping[str, float]
    ) -> set[str]:
        """Save new decisions in the state queued. Return the ids of those that did not exist yet.

        An insert can't use the database's clock, so the caller has read the times from it. Written to the primary
        alone.

        Args:
            decisions: Decisions with `queued_at` and `pass_key`.
            message_timeout: Seconds to the first deadline.
            task_timeouts: {actor: its task_timeout in seconds}. A shorter task_timeout makes the first deadline
                earlier.
        """
        documents = []
        for decision in decisions:
            assert decision.queued_at is not None and decision.pass_key is not None, (
                "it is queued since then, under that"
            )
            first_look = min(message_timeout, task_timeouts.get(decision.actor) or message_timeout)
            documents.append(
                to_document(decision)
                | {
                    "state": QUEUED,
                    "fresh": True,
                    "enqueuedAt": decision.queued_at,
                    "recoveryTime": decision.queued_at + timedelta(seconds=first_look),
                }
            )
        return {decision.id for decision in decisions} - {*there_already(self._current, documents)}

    def verified(self, decision_ids: Iterable[str]) -> None:
        """Note that these queued decisions belong to an existing process (remove `fresh`), so that nobody checks again.

        Written to the primary alone. A decision that is no longer queued is not changed.
        """
        if ids := list(decision_ids):
            self._current.update_many({"_id": {"$in": ids}, "state": QUEUED, "fresh": True}, {"$unset": {"fresh": ""}})

    def withdraw(self, decision_id: str, epoch: int) -> bool:
        """Remove a start task's decision that nobody has claimed. Return whether it was removed.

        Compares the epoch, the state queued and `fresh`. Written to the primary alone.
        """
        unclaimed = {"_id": decision_id, "epoch": epoch, "state": QUEUED, "fresh": True}
        return self._current.delete_one(unclaimed).deleted_count == 1

    def claim(
        self, actor: str, passes: Mapping[str, str], worker: str, timeout: float, limit: TaskLimit | None = None
    ) -> list[Decision]:
        """Claim (queued → working) those of these decisions whose current pass is the pass of their message.

        All decisions share one list of passes in the filter. This is exact, because a record has either its own
        message's pass or, if it was queued again, a newer pass than all in the list.

        Written to the primary alone: a claim that a failover undoes leaves a queued decision, whose message is found
        missing. Index `_id`.

        Args:
            actor: The actor of all of these decisions.
            passes: {decision: the pass in its message}. If there are several, decisions that must run alone are not
                claimed.
            worker: The holder of the claims.
            timeout: Seconds to the deadline.
            limit: The actor's `task_timeout`. A task whose time as a whole is over is not claimed.

        Returns:
            The claimed decisions in the order of `passes`, as they are after the claim. All other messages are stale.

        Raises:
            DamagedRecord: The only decision can't be read. If there are several, damaged ones are logged and left out.
        """
        of_these_messages: Document = {"actor": actor, "pass": {"$in": list(passes.values())}}
        guard: Document = {**of_these_messages, "state": QUEUED}
        fields, is_single = _claimed(worker, timeout, limit, self._version()), len(passes) == 1
        if limit is not None:
            guard["$expr"] = {"$gt": [task_end(limit.seconds), "$$NOW"]}
        if is_single:
            return [_claimed_of(document) for document in self._claim_one(next(iter(passes)), guard, fields)]
        # One update with lists takes a third of the time of one update for each decision.
        stages = [{"$set": {**fields, "inBatch": True}}]
        written = update_each(self._current, list(passes), {**guard, "alone": None}, stages)
        if written.whole and not written.count:
            return []
        claimed_now: Document = {
            "_id": {"$in": list(passes)},
            **of_these_messages,
            "state": WORKING,
            "worker": worker,
            "inBatch": True,
        }
        documents = self._current.find(claimed_now, _CLAIMED).hint("_id_")
        claimed = {decision.id: decision for decision in readable(Decision, documents, _claimed_of)}
        return [claimed[key] for key in passes if key in claimed]

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
        """Claim (waiting → working) ready decisions of an actor without a message, under a new pass.

        Decisions with an eta or delay are not claimed. Nor are decisions that another worker has enqueued, or whose
        epoch differs, because the values that the caller has read are of this epoch. Written to the primary alone, like
        an enqueue and a claim.

        Args:
            actor: The actor of all of these decisions.
            ready: Ids of decisions that wait for nothing any more.
            epoch: The process's epoch.
            pass_key: The new pass.
            worker: The holder of the claims.
            timeout: Seconds to the deadline.
            limit: The actor's `task_timeout`.
            in_batch: Whether the decisions run one after another.

        Returns:
            The claimed decisions, in any order. Damaged ones are logged and left out, because the task that made them
            ready must go on.
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
        claimed_now: Document = {"_id": {"$in": list(ready)}, "pass": pass_key, "state": WORKING, "worker": worker}
        return list(readable(Decision, self._current.find(claimed_now, _CLAIMED).hint("_id_"), _claimed_of))

    def _claim_one(self, key: str, guard: Document, fields: Document) -> list[Document]:
        """Claim one decision. Return its document in a list; empty if it does not match."""
        document = self._current.find_one_and_update(
            {"_id": key, **guard}, [{"$set": fields}], projection=_CLAIMED, return_document=True
        )
        return [document] if document else []

    def finish(self, ended: Sequence[Decision], *, accept_first: bool, worker: str, apply_timeout: float) -> set[str]:
        """Finish these decisions with their outcomes and children. This write is the commit point of each task.

        Written with a majority. The filter is explained in docs/records.md, 'What may be accepted'.

        Args:
            ended: The decisions as their attempts claimed them, with outcomes and children.
            accept_first: Accept a value from any attempt since the task's last restart, as long as the task is
                undecided. Otherwise, and always for an error, only the holder of the current pass may finish.
            worker: The holder of the claims.
            apply_timeout: Seconds after which other workers apply the results.

        Returns:
            The ids of the decisions whose results were accepted; all other results are stale. After a lost reply the
            same call returns the same ids.
        """
        groups: dict[tuple[int, int | None, bool], list[Decision]] = defaultdict(list)
        for decision in ended:
            assert decision.outcome is not None, "it has ended"
            groups[decision.epoch, decision.restarts, decision.outcome.error is None].append(decision)
        accepted: set[str] = set()
        for (epoch, restarts, has_value), group in groups.items():
            passes = group[0].pass_key if len(group) == 1 else {"$in": [decision.pass_key for decision in group]}
            guard = _may_finish(passes, epoch, restarts, accept_first and has_value)
            stages = _finished(group, worker, apply_timeout, self._version())
            # A record that can't be written stays unchanged. At its deadline a scanner handles it by itself.
            pass_over = (lambda _: None) if len(group) > 1 else None
            written = update_each(self._committed, [decision.id for decision in group], guard, stages, pass_over)
            if written.whole and written.count == len(group):
                accepted |= {decision.id for decision in group}
            else:
                accepted |= self._read_accepted(group)
        return accepted

    def counts(self, process_ids: Sequence[str]) -> dict[str, int]:
        """Return {process: number of its decisions, readable or not}, as the primary has them.

        Index `_id`, one range for each process, and no documents.
        """
        if not process_ids:
            return {}
        if len(process_ids) == 1:
            return {process_ids[0]: self._current.count_documents(record_range(process_ids[0]), hint="_id_")}
        in_processes: Document = {"$match": record_ranges(process_ids)}
        process: Document = {"$arrayElemAt": [{"$split": ["$_id", SEPARATOR]}, 0]}
        stages = [in_processes, {"$project": {"_id": True}}, {"$group": {"_id": process, "count": {"$sum": 1}}}]
        counts = {group["_id"]: group["count"] for group in self._current.aggregate(stages, hint="_id_")}
        return {process_id: counts.get(process_id, 0) for process_id in process_ids}

    def _read_accepted(self, ended: Sequence[Decision]) -> set[str]:
        """Return the ids of the decisions that have exactly these outcomes, written now or before a lost reply.

        Read as a majority has them. A majority has them by now, because the update before this waited for it even if it
        matched nothing (`catch_up`).
        """
        passes = {decision.id: decision.outcome.pass_key for decision in ended if decision.outcome is not None}
        accepted = {"_id": {"$in": list(passes)}, "outcome.pass": {"$in": list(passes.values())}}
        documents = self._committed.find(accepted, {"outcome.pass": True}).hint("_id_")
        return {document["_id"] for document in documents if document["outcome"]["pass"] == passes[document["_id"]]}


def _claimed(worker: str, timeout: float, limit: TaskLimit | None, version: str | None) -> Document:
    """Return the fields that a claim sets. `version` is the version of the worker's application."""
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
    """Return the field that records which version of the application runs or ran an attempt. Empty if the version is
    unknown.
    """
    return {} if version is None else {"version": literal(version)}


def _may_finish(pass_key: str | Document | None, epoch: int, restarts: int | None, accept_first: bool) -> Document:
    """Return the filter of the decisions whose result is accepted.

    Accepts the holder of the pass, or one of several. With `accept_first` it accepts any attempt of this life as well
    (docs/records.md, 'What may be accepted').
    """
    # The holder of the current pass may finish in any epoch: when a process is partly run again, the tasks that are
    # kept go on.
    guard: Document = {"state": WORKING, "pass": pass_key}
    if not accept_first:
        return guard
    life = {"epoch": epoch, "restarts": restarts}
    return {"$or": [guard, {**life, "state": {"$in": [WORKING, QUEUED, DELAYED]}}]}


def _finished(ended: Sequence[Decision], worker: str, apply_timeout: float, version: str | None) -> list[Document]:
    """Return the stages of the update that finishes these decisions, each with its own outcome and children.

    The version is set again, because the result may come from an attempt before the last claim.
    """
    outcomes = {decision.id: to_document(decision.outcome) for decision in ended if decision.outcome is not None}
    children = {decision.id: [to_document(child) for child in decision.children] for decision in ended}
    fields = {
        **_of_version(version),
        "state": FINISHED,
        "outcome": {"$mergeObjects": [by_id(outcomes), {"finishedAt": "$$NOW"}]},
        "children": by_id(children) if any(children.values()) else literal([]),
        "recoveryTime": after(apply_timeout),
        "worker": literal(worker),
    }
    if any(_retried_in_place(decision) for decision in ended):
        fields["retry"] = {
            "$ifNull": [by_id({decision.id: _retried_in_place(decision) for decision in ended}), "$retry"]
        }
    stages: list[Document] = [{"$set": fields}]
    return [*stages, {"$unset": "inBatch"}] if any(decision.in_batch for decision in ended) else stages


def _retried_in_place(decision: Decision) -> Document | None:
    """Return the retries that this attempt has made in its slot, which no write has counted yet; None if there were
    none.
    """
    retry = decision.retry
    return to_document(retry) if retry is not None and retry.pass_key == decision.pass_key else None


def _claimed_of(document: Document) -> Decision:
    """Decode a document that was read with `_CLAIMED`. Damaged `_COPIED` fields are left out. Raises DamagedRecord for
    other damage.
    """
    try:
        return from_document(Decision, document)
    except DamagedRecord as damage:
        if not _COPIED.issuperset(damage.fields):
            raise
        return from_document(Decision, {key: value for key, value in document.items() if key not in damage.fields})
