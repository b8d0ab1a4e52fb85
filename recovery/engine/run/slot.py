"""A slot does the task of a message, and goes on with what else is queued for its actor, while these tasks are short
(docs/records.md, 'The order of writes').

    pop hints → claim all → run all, and what becomes ready by them (`batch`) → pop hints …

Short tasks are taken one by one, quick ones some dozens at once. Hints are taken from Redis past Celery: nothing is
lost with them, since what is queued is queued in MongoDB.

What comes of a message's task is told by name, so that the worker can count it. An actor's exception, of whatever kind,
ends its task with an error, or has it tried again (`retrying`); an exception of the database ends the attempt only, and
what it held is given back.

Of a slot that is killed its worker knows which task it ran; the others count no timeout. A batch runs many tasks before
any of their ends is written, and all that ran are run again, so only tasks of actors whose lost attempts may be done
again are run in batches of more than one.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recovery import metrics, tracing
from recovery.engine.actors.actor import Actor
from recovery.engine.actors.call import Host
from recovery.engine.apply.outbox import Outbox
from recovery.engine.isolation import tell
from recovery.engine.rejections import Conditions, Step, note_rejected
from recovery.engine.resources import Resources
from recovery.engine.run.batch import Batch
from recovery.engine.run.hand import Watch
from recovery.engine.run.pace import Pace
from recovery.engine.run.trying import Place, Result
from recovery.engine.steps import put_back, requeue_unrun
from recovery.errors import DamagedRecord, StoreError, StoreUnavailable
from recovery.queue import MessageId
from recovery.records import Decision
from recovery.records.ids import is_pass, is_record_id
from recovery.store.views.overview import time_limit

log = logging.getLogger(__name__)

GO_ON_FOR = 0.5
"""Seconds from a message on during which a slot takes other tasks by itself: of the message's queue, and those that
become ready. A bound, so that a long process shares the worker with the queue. Celery takes from all queues in turn, so
another queue's messages wait for so long at most."""

_IN_VAIN = frozenset({Result.STALE_MESSAGE, Result.BLOCKED, Result.REFUSED})

Hints = Callable[[str, int], Sequence[MessageId]]
"""Given a queue, up to so many of the messages that come next in it, taken out of it; none if Redis is away."""


def no_hints(_queue: str, _most: int) -> Sequence[MessageId]:
    """Hints of one that does nothing but what it is told."""
    return ()


@dataclass(frozen=True, slots=True)
class Intake:
    """What all slots of one process share: where they take tasks by themselves, and what they have seen of these."""

    hints: Hints = no_hints
    pace: Pace = field(default_factory=lambda: Pace(1))
    watch: Watch = field(default_factory=Watch)


class Slot:
    """Attempts in one pool process or thread."""

    def __init__(
        self,
        resources: Resources,
        outbox: Outbox,
        actors: Mapping[str, Actor[..., Any]],
        holder: str,
        host: Host | None = None,
        intake: Intake | None = None,
    ) -> None:
        """`actors` are those whose queues this worker serves; `holder` is no other slot's while this one runs. Without
        an `intake` it does nothing but what it is told, and what becomes ready by that."""
        self._resources, self._outbox = resources, outbox
        self._place, self._intake = Place(resources, actors, holder, host), intake or Intake()

    @property
    def host(self) -> Host:
        """The process that this is a part of."""
        return self._place.host

    @property
    def last(self) -> str | None:
        """The task that was called last."""
        return self._place.trying.last

    def give_back_unrun(self, passes: Mapping[str, str], error: Exception) -> None:
        """Requeue {decision: pass} of what this process could not run for this error. It counts as no attempt, and
        comes again after a while. Raises StoreError."""
        if passes:
            requeue_unrun(self._resources, passes, self._place.holder, error)

    def run(self, actor: Actor[..., Any], decision_id: str, pass_key: str) -> Result:
        """Do the task of a message, if its pass is still the current one, and what else is queued for its actor, as
        long as that is short, and for a while. Errors of servers are raised.

        The result is that of the message's task; of those run after it, the metrics tell. BLOCKED: nothing was done,
        and the message is to be given back.
        """
        first, until = MessageId(decision_id, pass_key, None), time.monotonic() + GO_ON_FOR
        if not _is_message(first):
            metrics.STALE.labels("message").inc()
            return Result.STALE_MESSAGE
        room = self._room(actor)
        more = self._intake.hints(actor.name, room - 1) if room > 1 else ()
        came_of = self._run(actor, [first, *more], until)
        result, is_more = came_of.get(first, Result.CLAIM_LOST), len(more) == room - 1
        self._put_back(more, came_of, actor)
        while is_more and time.monotonic() < until and self._goes_on(actor, came_of):
            room = self._room(actor)
            more = self._intake.hints(actor.name, room)
            came_of = self._run(actor, more, until)
            self._put_back(more, came_of, actor)
            is_more = len(more) == room
        return result

    def _room(self, actor: Actor[..., Any]) -> int:
        """How many tasks of an actor to take now."""
        room = self._intake.pace.room(actor.name)
        if room == 1 or tracing.is_on():
            return 1
        return room if self._place.as_set(actor).preferences.restarts_lost_attempts else 1

    def _goes_on(self, actor: Actor[..., Any], came_of: Mapping[MessageId, Result]) -> bool:
        """Whether to take others. Of stale messages only Celery's are counted, and dropped where there are many. What
        can't be processed has no result, and is given back: it would come again."""
        if not self._intake.pace.is_short(actor.name) or _IN_VAIN.issuperset(came_of.values()):
            return False
        return not self._place.is_blocked(actor.name)

    def _put_back(
        self, taken: Iterable[MessageId], came_of: Mapping[MessageId, Result], actor: Actor[..., Any]
    ) -> None:
        """What was taken of an actor that was blocked just then comes first when it is taken up again."""
        blocked = [one for one in taken if came_of.get(one) is Result.BLOCKED]
        put_back(self._resources, actor.name, [(one.decision_id, one.pass_key) for one in blocked])

    def _run(self, actor: Actor[..., Any], messages: Sequence[MessageId], until: float) -> Mapping[MessageId, Result]:
        """Do the tasks of messages; what came of each, but of those that were given back. Of two messages of one task
        one is stale, and nobody knows which: each is looked at by itself. If an error is raised, the messages that were
        not begun are put back."""
        known = [one for one in messages if _is_message(one)]
        came_of = dict.fromkeys((one for one in messages if not _is_message(one)), Result.STALE_MESSAGE)
        metrics.STALE.labels("message").inc(len(came_of))
        of_task = Counter(one.decision_id for one in known)
        together = [one for one in known if of_task[one.decision_id] == 1]
        portions = [together] if together else []
        portions += [[one] for one in known if of_task[one.decision_id] > 1]
        waiting = dict.fromkeys(known)
        try:
            while portions:
                some = portions.pop(0)
                if self._place.is_blocked(actor.name):
                    came_of |= dict.fromkeys(some, Result.BLOCKED)
                    continue
                results = self._run_together(self._place.as_set(actor), some, until, waiting)
                came_of |= results
                portions += [[one] for one in some if one in waiting]
        except Exception:
            put_back(self._resources, actor.name, [(one.decision_id, one.pass_key) for one in waiting])
            raise
        return came_of

    def _run_together(
        self, actor: Actor[..., Any], messages: Sequence[MessageId], until: float, waiting: dict[MessageId, None]
    ) -> dict[MessageId, Result]:
        """Do the tasks of messages together; what came of each, but of those that were given back. Of `waiting`
        messages it takes out all but those that were not claimed, and are to be looked at by themselves."""
        passes = {one.decision_id: one.pass_key for one in messages}
        for one in messages:  # where they can't be claimed they are put back there
            del waiting[one]
        try:
            claimed = self._claim(actor, passes)
        except DamagedRecord as damage:  # of the only one; at its deadline it is seen to
            tell(messages[0].decision_id, damage)
            return dict.fromkeys(messages, Result.NOT_READY)
        missing = passes.keys() - {one.id for one in claimed}
        waiting |= dict.fromkeys(one for one in messages if one.decision_id in missing)
        batch = Batch(self._place, self._outbox, self._intake.pace, self._intake.watch)
        batch.run(claimed, until)
        stale = missing - self._still_queued(missing, passes) if len(messages) > 1 else missing
        metrics.STALE.labels("message").inc(len(stale))
        if stale:
            is_timed = actor.preferences.task_limit is not None
            rejected = {key: Conditions.of_claim(actor.name, passes[key], is_timed) for key in stale}
            note_rejected(self._resources, Step.CLAIM, rejected)
        results = {one: Result.STALE_MESSAGE for one in messages if one.decision_id in stale}
        for one in results:
            del waiting[one]
        return results | {one: batch.results[one.decision_id] for one in messages if one.decision_id in batch.results}

    def _claim(self, actor: Actor[..., Any], passes: Mapping[str, str]) -> list[Decision]:
        """Claim the tasks of messages. In time, or the messages are another worker's."""
        decisions, its, holder = self._resources.store.decisions, actor.preferences, self._place.holder
        try:
            with time_limit(self._resources.settings.claim_within):
                claimed = decisions.claim(actor.name, passes, holder, its.worker_timeout, its.task_limit)
        except StoreError as error:
            if isinstance(error, StoreUnavailable):
                put_back(self._resources, actor.name, passes.items())
            requeue_unrun(self._resources, passes, holder, error)  # it took place, perhaps
            raise
        for decision in claimed:
            if decision.claimed_at is not None and decision.queued_at is not None:
                waited = (decision.claimed_at - decision.queued_at).total_seconds()
                metrics.QUEUE_SECONDS.labels(decision.actor).observe(max(0.0, waited))
        return claimed

    def _still_queued(self, missing: Collection[str], passes: Mapping[str, str]) -> set[str]:
        """Those of these that are still queued under {decision: pass}: they are to be claimed alone."""
        queued = self._resources.store.decisions.queued_passes(missing) if missing else {}
        return {key for key, pass_key in queued.items() if pass_key == passes[key]}


def _is_message(one: MessageId) -> bool:
    """Whether it is one of ours: to MongoDB another's might be a query."""
    return is_record_id(one.decision_id) and is_pass(one.pass_key)
