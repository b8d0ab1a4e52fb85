"""Quick tasks in batches: one slot claims some dozens of one actor at once, runs them one after the other, and ends
them at once.

    pop hints → claim all → run, run, run … → finish all → apply all

The order is that of one task, for each of them (docs/records.md). Only what has a value and schedules nothing is ended
with others; what fails, schedules, or unlocks another task takes the way of one. Hints are taken from Redis past
Celery: nothing is lost with them, since what is queued is queued in MongoDB.

Of a slot that is killed its worker knows which task it ran; the others count no timeout. A batch runs many tasks before
any of their ends is written, and all that ran are run again, so only actors whose lost attempts may be done again have
batches.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recovery import metrics, tracing
from recovery.engine.actors.actor import Actor
from recovery.engine.actors.call import pass_of
from recovery.engine.actors.context import attempting
from recovery.engine.isolation import is_of_servers, tell
from recovery.engine.lifecycle.applier import Applier
from recovery.engine.lifecycle.hand import Hand, Watch
from recovery.engine.lifecycle.pace import Pace
from recovery.engine.lifecycle.steps import ClaimedTask, Ended, push
from recovery.engine.lifecycle.trying import Result, Tried, stale_results
from recovery.engine.outages import through_outage
from recovery.engine.resources import Resources
from recovery.errors import StoreError
from recovery.metrics import counting
from recovery.queue import MessageId
from recovery.records import Decision
from recovery.records.ids import new_pass

if TYPE_CHECKING:
    from recovery.engine.lifecycle.attempt import Slot

log = logging.getLogger(__name__)

GO_ON_FOR = 0.5
"""Seconds from a message on during which a slot takes others of its queue by itself. Celery takes from all queues in
turn, so another queue's messages wait for so long at most."""
SMALL = 4096
"""Characters of a value that is written with others: 64 of them are far from the 16 MB of a command."""

Hints = Callable[[str, int], Sequence[MessageId]]
"""Given a queue, up to so many of the messages that come next in it, taken out of it; none if Redis is away."""


class Batches:
    """Of one process of a worker, for all of its slots."""

    def __init__(self, resources: Resources, applier: Applier, hints: Hints, watch: Watch | None = None) -> None:
        self._resources, self._applier, self._hints = resources, applier, hints
        self._pace, self._watch = Pace(), watch or Watch()

    def note(self, actor: Actor[..., Any], tried: Tried, seconds: float) -> None:
        """An attempt took so long, and came to this."""
        self._pace.note(actor.name, seconds if is_plain(tried) else 1.0)

    def go_on(self, slot: Slot, actor: Actor[..., Any], began: float) -> None:
        """Do what else is queued for an actor, as long as it is quick, and for a while since it began. Errors of
        servers are raised."""
        while time.monotonic() < began + GO_ON_FOR:
            count = self._pace.room(actor.name)
            as_set = slot.as_set(actor)
            if count < 2 or not self._may_go(as_set):
                return
            hints = self._hints(actor.name, count)
            if len(hints) == 1:
                slot.run_alone(actor, hints[0].decision_id, hints[0].pass_key)
            elif hints:
                left = Batch(self._resources, self._applier, slot, as_set).run(hints, self._watch, self.note)
                for decision_id, pass_key in left.items():
                    slot.run_alone(actor, decision_id, pass_key)
            if len(hints) < count:
                return

    def _may_go(self, actor: Actor[..., Any]) -> bool:
        # A span is told how its attempt ended when it ends; in a batch that is known later.
        safe = actor.preferences.restarts_lost_attempts and not tracing.is_on()
        return safe and not self._resources.store.preferences.is_blocked(actor.name)


class Batch:
    """One of them."""

    def __init__(self, resources: Resources, applier: Applier, slot: Slot, actor: Actor[..., Any]) -> None:
        self._resources, self._applier, self._slot, self._actor = resources, applier, slot, actor
        self._store = resources.store

    def run(
        self, hints: Sequence[MessageId], watch: Watch, note: Callable[[Actor[..., Any], Tried, float], None]
    ) -> dict[str, str]:
        """Claim and run what these tell of; {decision: pass} of what is still queued: it is to be claimed alone."""
        passes = {hint.decision_id: hint.pass_key for hint in hints}
        claimed = self._claim(passes)
        hand = Hand(claimed)
        with watch.over(hand, self._relieve):
            while (decision := hand.next()) is not None:
                self._run_one(decision, hand, note)
            ended, unrun = hand.empty()
        self._write(ended)
        self._give_back(unrun)
        return self._left(passes, claimed)

    def _claim(self, passes: Mapping[str, str]) -> list[Decision]:
        preferences = self._actor.preferences
        limits = preferences.worker_timeout, preferences.task_limit
        try:
            claimed = self._store.decision_batches.claim(self._actor.name, passes, self._slot.holder, *limits)
        except StoreError:
            self._requeue(passes)  # it took place, perhaps
            raise
        for decision in claimed:
            observe_wait(decision)
        return claimed

    def _left(self, passes: Mapping[str, str], claimed: Sequence[Decision]) -> dict[str, str]:
        missing = passes.keys() - {one.id for one in claimed}
        if not missing:
            return {}
        queued = self._store.decisions.queued_passes(missing)
        left = {key: pass_key for key, pass_key in queued.items() if pass_key == passes[key]}
        metrics.STALE.labels("message").inc(len(missing) - len(left))
        return left

    def _run_one(self, decision: Decision, hand: Hand, note: Callable[[Actor[..., Any], Tried, float], None]) -> None:
        here, began = ClaimedTask(decision), time.perf_counter()
        try:
            with attempting(decision):
                tried = self._slot.trying.run(self._actor, here, tracing.NOTHING, _nothing)
                note(self._actor, tried, time.perf_counter() - began)
                if is_plain(tried) and tried.ended is not None:
                    hand.keep(tried.ended)
                    return
                result = tried.result
                if tried.ended is not None:
                    result, _ = self._slot.end(self._actor, tried.ended, here, until=0.0)
                metrics.ATTEMPTS.labels(self._actor.name, result.value).inc()
        except StoreError:
            ended, unrun = hand.empty()
            self._give_back([decision, *unrun, *(one.decision for one in ended)])
            raise

    def _relieve(self, hand: Hand, slow: Decision) -> None:
        """See to what waits for a slow task: by another thread than that which runs it."""
        ended, unrun = hand.empty()
        self._give_back(unrun)
        self._write(ended)
        preferences = self._actor.preferences
        # Its time began when it was claimed; what ran before it took some of that.
        self._store.decisions.extend(slow.id, pass_of(slow), preferences.worker_timeout, preferences.task_limit)

    def _write(self, ended: Sequence[Ended]) -> None:
        """Finish these, and have them applied."""
        if not ended:
            return
        pairs = [(one.decision, one.decision.outcome) for one in ended if one.decision.outcome is not None]
        preferences = self._actor.preferences
        try:
            accepted = through_outage(
                self._resources,
                lambda: self._store.decision_batches.finish(
                    pairs,
                    accept_first=preferences.accept_first,
                    worker=self._slot.holder,
                    apply_timeout=self._resources.settings.apply_timeout,
                ),
                preferences.worker_timeout,
                ended[0].decision.id,
            )
        except StoreError:
            self._give_back([one.decision for one in ended])
            raise
        metrics.ATTEMPTS.labels(self._actor.name, Result.FINISHED.value).inc(len(accepted))
        if len(accepted) < len(ended):
            stale_results([one.decision for one in ended if one.decision.id not in accepted])
            metrics.ATTEMPTS.labels(self._actor.name, Result.STALE_RESULT.value).inc(len(ended) - len(accepted))
        log.info("%s: %d attempts in one batch finished", self._actor.name, len(accepted))
        try:
            self._applier.submit_all([one for one in ended if one.decision.id in accepted])
        except Exception as error:
            if is_of_servers(error):
                raise
            tell(ended[0].decision.id, error)

    def _give_back(self, decisions: Sequence[Decision]) -> None:
        """Requeue what was claimed and is not run, or whose end could not be written."""
        if decisions:
            self._requeue({one.id: pass_of(one) for one in decisions})

    def _requeue(self, passes: Mapping[str, str]) -> None:
        queued = through_outage(
            self._resources,
            lambda: self._store.requeues.requeue_all_unrun(passes, self._slot.holder, new_pass()),
            self._resources.settings.message_timeout,
            next(iter(passes)),
        )
        push(self._resources, queued)
        counting.requeued("GIVEN_BACK", [one.actor for one in queued])


def is_plain(tried: Tried) -> bool:
    """Whether an attempt's end may be written with others': it has a value, a small one, and nothing begins by it but
    what its graph says."""
    if tried.ended is None or tried.result is not Result.FINISHED:
        return False
    ended, outcome = tried.ended, tried.ended.decision.outcome
    small = outcome is not None and len(outcome.value or "") <= SMALL
    return small and not ended.decision.children and not ended.task.unlocks


def observe_wait(claimed: Decision) -> None:
    """Count how long a task that was just claimed had waited in its queue."""
    if claimed.claimed_at is not None and claimed.queued_at is not None:
        waited = (claimed.claimed_at - claimed.queued_at).total_seconds()
        metrics.QUEUE_SECONDS.labels(claimed.actor).observe(max(0.0, waited))


def _nothing() -> None:
    return
