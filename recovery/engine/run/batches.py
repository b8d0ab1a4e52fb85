"""Tasks that a slot takes by itself. Short ones one by one, after that of a message. Quick ones in batches: it claims
some dozens of one actor at once, runs them one after the other, and ends them at once.

    pop hints → claim all → run, run, run … → finish all → apply all → claim what became ready → …

The order is that of one task, for each of them (docs/records.md). What fails, or is large, is ended by itself. Hints
are taken from Redis past Celery: nothing is lost with them, since what is queued is queued in MongoDB.

Of a slot that is killed its worker knows which task it ran; the others count no timeout. A batch runs many tasks before
any of their ends is written, and all that ran are run again, so only actors whose lost attempts may be done again have
batches.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recovery import metrics, tracing
from recovery.engine.actors.actor import Actor
from recovery.engine.apply.outbox import Applier
from recovery.engine.isolation import is_of_servers, tell
from recovery.engine.resources import Resources
from recovery.engine.run.batch import Batch, is_plain
from recovery.engine.run.hand import Watch
from recovery.engine.run.pace import Pace
from recovery.engine.run.trying import Result, Tried
from recovery.engine.steps import put_back, requeue_unrun
from recovery.errors import StoreError, StoreUnavailable
from recovery.queue import MessageId
from recovery.records import Decision
from recovery.records.ids import is_pass, is_record_id
from recovery.store.views.overview import time_limit

if TYPE_CHECKING:
    from recovery.engine.run.slot import Slot

GO_ON_FOR = 0.5
"""Seconds from a message on during which a slot takes others of its queue by itself. Celery takes from all queues in
turn, so another queue's messages wait for so long at most."""

_IN_VAIN = frozenset({Result.STALE_MESSAGE, Result.BLOCKED, Result.REFUSED})

Hints = Callable[[str, int], Sequence[MessageId]]
"""Given a queue, up to so many of the messages that come next in it, taken out of it; none if Redis is away."""


class Batches:
    """Of one process of a worker, for all of its slots."""

    def __init__(self, resources: Resources, applier: Applier, hints: Hints, watch: Watch | None = None) -> None:
        self._resources, self._applier, self._hints = resources, applier, hints
        self._pace, self._watch = Pace(resources.settings.batch_size), watch or Watch()

    def note_alone(self, actor: Actor[..., Any], tried: Tried, seconds: float, end: float) -> None:
        """An attempt that was by itself took so long, and came to this, and to write and apply that took so long."""
        self.note(actor, tried, seconds)
        self._pace.note_around(end)

    def note(self, actor: Actor[..., Any], tried: Tried, seconds: float) -> None:
        """An attempt took so long, and came to this."""
        self._pace.note(actor.name, seconds)
        if not (is_plain(tried) and all(map(self._pace.is_quick, _made_ready(tried)))):
            self._pace.note_unfit(actor.name)

    def run(self, slot: Slot, actor: Actor[..., Any], first: MessageId) -> Result:
        """Do the task of a message, and what else is queued for its actor, as long as it is short, and for a while: in
        batches if it is quick, else one by one. What came of the first. Errors of servers are raised."""
        until, others = time.monotonic() + GO_ON_FOR, self._room(slot, actor) - 1
        more = self._hints(actor.name, others) if others and _is_message(first) else []
        came_of = self._run(slot, actor, [first, *more], until)
        result, is_more = came_of.get(first, Result.CLAIM_LOST), len(more) == others
        self._put_back(more, came_of, actor)
        while is_more and time.monotonic() < until and self._goes_on(actor, came_of):
            room = self._room(slot, actor)
            more = self._hints(actor.name, room)
            came_of = self._run(slot, actor, more, until)
            self._put_back(more, came_of, actor)
            is_more = len(more) == room
        return result

    def _goes_on(self, actor: Actor[..., Any], came_of: Mapping[MessageId, Result]) -> bool:
        """Whether to take others. Of stale messages only Celery's are counted, and dropped where there are many. What
        can't be processed has no result, and is given back: it would come again."""
        if not self._pace.is_short(actor.name) or _IN_VAIN.issuperset(came_of.values()):
            return False
        return not self._resources.store.preferences.is_blocked(actor.name)

    def _put_back(
        self, taken: Sequence[MessageId], came_of: Mapping[MessageId, Result], actor: Actor[..., Any]
    ) -> None:
        """What was taken of an actor that was blocked just then comes first when it is taken up again."""
        blocked = [one for one in taken if came_of.get(one) is Result.BLOCKED]
        put_back(self._resources, actor.name, [(one.decision_id, one.pass_key) for one in blocked])

    def _room(self, slot: Slot, actor: Actor[..., Any]) -> int:
        """How many tasks of an actor to take now."""
        room = self._pace.room(actor.name)
        return room if room > 1 and self._may_go(slot.as_set(actor)) else 1

    def _may_go(self, actor: Actor[..., Any]) -> bool:
        # A span is told how its attempt ended when it ends; in a batch that is known later.
        safe = actor.preferences.restarts_lost_attempts and not tracing.is_on()
        return safe and not self._resources.store.preferences.is_blocked(actor.name)

    def _run(
        self, slot: Slot, actor: Actor[..., Any], messages: Sequence[MessageId], until: float
    ) -> Mapping[MessageId, Result]:
        """Do the tasks of messages together; what came of each, but of those that were given back. Of two messages of
        one task one is stale, and nobody knows which: each is looked at by itself. If an error is raised, the messages
        that were not begun are put back."""
        of_task = Counter(one.decision_id for one in messages)
        single = [one for one in messages if of_task[one.decision_id] == 1]
        by_themselves = [one for one in messages if of_task[one.decision_id] > 1 or len(single) == 1]
        waiting = dict.fromkeys(filter(_is_message, messages))
        try:
            came_of = self._run_together(slot, slot.as_set(actor), single, until, waiting) if len(single) > 1 else {}
            return came_of | self._run_alone(slot, actor, by_themselves, until, waiting)
        except Exception:
            put_back(self._resources, actor.name, [(one.decision_id, one.pass_key) for one in waiting])
            raise

    def _run_alone(
        self,
        slot: Slot,
        actor: Actor[..., Any],
        messages: Sequence[MessageId],
        until: float,
        waiting: dict[MessageId, None],
    ) -> dict[MessageId, Result]:
        """What came of each, but of those for which another program's records are to blame: their deadlines stand. Of
        `waiting` messages it takes out those that are begun."""
        came_of = {}
        for one in messages:
            waiting.pop(one, None)
            try:
                came_of[one] = slot.run_alone(actor, one.decision_id, one.pass_key, until)
            except Exception as error:
                if is_of_servers(error):
                    raise
                tell(one.decision_id, error)
            else:
                if came_of[one] is Result.BLOCKED:
                    waiting[one] = None
        return came_of

    def _run_together(
        self,
        slot: Slot,
        actor: Actor[..., Any],
        messages: Sequence[MessageId],
        until: float,
        waiting: dict[MessageId, None],
    ) -> dict[MessageId, Result]:
        passes = {one.decision_id: one.pass_key for one in messages}
        for one in messages:  # `_claim` puts them back itself where it can't claim
            waiting.pop(one, None)
        claimed = self._claim(slot, actor, passes)
        ids = {one.id for one in claimed}
        waiting |= dict.fromkeys(one for one in messages if one.decision_id not in ids)

        def fits(name: str) -> int:
            served = slot.may_take(name) and slot.actor(name).preferences.restarts_lost_attempts
            return self._pace.fits(name) if served else 0

        batch = Batch(self._resources, self._applier, slot, self._watch, self.note, fits)
        batch.run(claimed, until)
        left = self._left(passes, claimed)
        for one in messages:
            if one.decision_id not in left:
                waiting.pop(one, None)
        alone = self._run_alone(slot, actor, [one for one in messages if one.decision_id in left], until, waiting)
        stale = {one: Result.STALE_MESSAGE for one in messages if one.decision_id not in left.keys() | ids}
        together = {one: batch.results[one.decision_id] for one in messages if one.decision_id in batch.results}
        return {**stale, **together, **alone}

    def _claim(self, slot: Slot, actor: Actor[..., Any], passes: Mapping[str, str]) -> list[Decision]:
        limits = actor.preferences.worker_timeout, actor.preferences.task_limit
        try:
            with time_limit(self._resources.settings.claim_within):
                claimed = self._resources.store.decision_batches.claim(actor.name, passes, slot.holder, *limits)
        except StoreError as error:
            if isinstance(error, StoreUnavailable):
                put_back(self._resources, actor.name, passes.items())
            requeue_unrun(self._resources, passes, slot.holder, error)  # it took place, perhaps
            raise
        for decision in claimed:
            observe_wait(decision)
        return claimed

    def _left(self, passes: Mapping[str, str], claimed: Sequence[Decision]) -> dict[str, str]:
        """{decision: pass} of what is still queued: it is to be claimed alone."""
        missing = passes.keys() - {one.id for one in claimed}
        if not missing:
            return {}
        queued = self._resources.store.decisions.queued_passes(missing)
        left = {key: pass_key for key, pass_key in queued.items() if pass_key == passes[key]}
        metrics.STALE.labels("message").inc(len(missing) - len(left))
        return left


def _is_message(one: MessageId) -> bool:
    """Whether it is one of ours: to MongoDB another's might be a query."""
    return is_record_id(one.decision_id) and is_pass(one.pass_key)


def _made_ready(tried: Tried) -> Iterator[str]:
    """Actors of tasks that a task made ready. One that is slow is run where it became ready, without a message, and by
    many slots at once: so is what makes it ready."""
    if tried.ended is not None:
        children = tried.ended.decision.children
        yield from (child.actor for child in children if not (child.deps or child.eta or child.delay))
        yield from tried.ended.task.unlocks.values() if not children else ()


def observe_wait(claimed: Decision) -> None:
    """Count how long a task that was just claimed had waited in its queue."""
    if claimed.claimed_at is not None and claimed.queued_at is not None:
        waited = (claimed.claimed_at - claimed.queued_at).total_seconds()
        metrics.QUEUE_SECONDS.labels(claimed.actor).observe(max(0.0, waited))
