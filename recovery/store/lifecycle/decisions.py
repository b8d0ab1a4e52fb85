"""Updates of the Decision records, as the life of a task needs them.

Each update's filter is the whole condition that it was decided on: state, pass, epoch. What comes back says
which took place. What they set stands in `decision_updates`; `requeues` queues again what is overdue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pymongo.collection import Collection

from recovery.records import (
    Decision,
    Refused,
    RetryState,
    TaskLimit,
    to_document,
)
from recovery.store.client import Document
from recovery.store.driver_errors import translated
from recovery.store.expressions import task_end
from recovery.store.lifecycle.decision_updates import (
    CLAIMED,
    QUEUED,
    WAITING,
    WORKING,
    claimed,
    claimed_of,
    claimed_ready,
    finished,
    given_back_refused,
    may_finish,
    retried_later,
)
from recovery.store.lifecycle.task_deadlines import DecisionDeadlines
from recovery.store.lifecycle.tasks import insert_missing, there_already
from recovery.store.record_reading import readable
from recovery.store.splitting import update_each

_CLAIM = ("worker", "recoveryTime", "enqueuedAt", "inBatch")
"""What a claim that is taken back leaves nothing of."""


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
class Decisions(DecisionDeadlines):
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
        fields, alone = claimed(worker, timeout, limit, self._version()), len(passes) == 1
        if limit is not None:
            guard["$expr"] = {"$gt": [task_end(limit.seconds), "$$NOW"]}
        if alone:
            return self._claim_one(next(iter(passes)), guard, fields)
        # By one update with lists: some 25 µs for each, where an update for each takes 90.
        stages = [{"$set": {**fields, "inBatch": True}}]
        written = update_each(self._current, list(passes), {**guard, "alone": None}, stages)
        if written.whole and not written.count:
            return []
        held: Document = {"_id": {"$in": list(passes)}, **ours, "state": WORKING, "worker": worker, "inBatch": True}
        found = {one.id: one for one in readable(Decision, self._current.find(held, CLAIMED).hint("_id_"), claimed_of)}
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
        theirs. Restorable, as both of its parts are. `in_batch`: they are run after others. Raises DamagedRecord as
        `claim`.
        """
        guard: Document = {"actor": actor, "epoch": epoch, "state": WAITING, "eta": None, "delay": None}
        fields = {**claimed_ready(worker, timeout, limit, self._version()), "pass": pass_key}
        if in_batch:
            fields["inBatch"] = True
        if len(ready) == 1:
            return self._claim_one(ready[0], guard, fields)
        written = update_each(self._current, ready, guard, [{"$set": fields}])
        if written.whole and not written.count:
            return []
        held: Document = {"_id": {"$in": list(ready)}, "pass": pass_key, "state": WORKING, "worker": worker}
        return list(readable(Decision, self._current.find(held, CLAIMED).hint("_id_"), claimed_of))

    def _claim_one(self, key: str, guard: Document, fields: Document) -> list[Decision]:
        found = self._current.find_one_and_update(
            {"_id": key, **guard}, [{"$set": fields}], projection=CLAIMED, return_document=True
        )
        return [claimed_of(found)] if found else []

    def wait_again(self, claimed: Decision) -> bool:
        """working → waiting, for a claim on what turns out not to be ready: its graph has to be looked at. No timeout
        is counted, and its time as a whole begins when it can be taken again. False: it no longer holds the claim."""
        changed = self._current.update_one(
            {"_id": claimed.id, "state": WORKING, "pass": claimed.pass_key},
            {"$set": {"state": WAITING}, "$unset": dict.fromkeys(_CLAIM, "")},
        )
        return changed.matched_count == 1

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
            guard = may_finish(passes, epoch, restarts, accept_first and has_value)
            stages = finished(alike, worker, apply_timeout, self._version())
            # What can't be written stays as it is: at its deadline it is seen to, by itself.
            pass_over = (lambda _: None) if len(alike) > 1 else None
            written = update_each(self._committed, [one.id for one in alike], guard, stages, pass_over)
            if written.whole and written.count == len(alike):
                accepted |= {one.id for one in alike}
            else:
                accepted |= self._taken(alike)
        return accepted

    def retry_later(
        self, decision: Decision, retry: RetryState, seconds: float, limit: TaskLimit | None = None
    ) -> bool:
        """working → delayed, to be tried again after so many seconds; `retry` is kept with it. Acknowledged: what is
        counted here is told, and decides whether there is another one.

        `decision` is as the attempt claimed it; as for an error, only the holder of the current pass may. False: it
        no longer is. An attempt that asks again after a lost reply gets True if it was its own.
        """
        guard, stages = retried_later(decision, retry, seconds, limit)
        if self._committed.update_one(guard, stages).matched_count == 1:
            return True
        ours = {"_id": decision.id, "retry.pass": retry.pass_key}
        return self._committed.find_one(ours, {"_id": True}) is not None

    def give_back_refused(
        self,
        decision: Decision,
        refused: Refused,
        retry: RetryState | None,
        seconds: float,
        limit: TaskLimit | None = None,
    ) -> bool:
        """working → delayed, for a task whose call the worker's code does not accept. Its attempt is not counted.

        Restorable: a task that a failover takes back to `working` is overdue at its deadline.

        Args:
            decision: As the attempt claimed it.
            refused: Who has refused the task, this time included.
            retry: The retries of the task, if there were any.
            seconds: The delay.
            limit: The task's `task_timeout`.

        Returns:
            False if the attempt no longer holds the claim. True for an attempt that asks again after a lost reply.
        """
        guard, stages = given_back_refused(decision, refused, retry, seconds, limit)
        if self._current.update_one(guard, stages).matched_count == 1:
            return True
        ours = {"_id": decision.id, "refused.pass": refused.pass_key}
        return self._current.find_one(ours, {"_id": True}) is not None

    def clear_refusals(self, claimed: Decision) -> None:
        """Forget who has refused a task whose attempt begins, if the attempt still holds its claim.

        Restorable: if a failover takes this back, the task may count as refused for longer than it was.
        """
        held = {"_id": claimed.id, "state": WORKING, "pass": claimed.pass_key}
        self._current.update_one(held, {"$unset": {"refused": ""}})

    def _taken(self, ended: Sequence[Decision]) -> set[str]:
        """Those that these outcomes were accepted of: now, or before and the reply was lost. A majority has them by
        now: the update before this waited for that, even if it matched nothing (`catch_up`)."""
        passes = {one.id: one.outcome.pass_key for one in ended if one.outcome is not None}
        taken = {"_id": {"$in": list(passes)}, "outcome.pass": {"$in": list(passes.values())}}
        found = self._committed.find(taken, {"outcome.pass": True}).hint("_id_")
        return {one["_id"] for one in found if one["outcome"]["pass"] == passes[one["_id"]]}
