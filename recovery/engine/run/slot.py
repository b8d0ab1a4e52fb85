"""Runs the task of a message, and continues with queued tasks of the same actor while they are short.

    pop hints → claim all → run all, and tasks that become ready through them (`batch`) → pop hints …

(docs/records.md, 'The order of writes')

Short tasks are claimed one by one, quick tasks in batches of dozens. Hints are messages taken from Redis past Celery. A
lost hint loses no task, because tasks are queued in MongoDB.

The result of the message's task is returned by name, so that the worker can count it. An actor's exception of any kind
ends its task with an error, or has it retried (`retrying`). An exception of the database ends only the attempt, and its
tasks are given back.

If a slot is killed, its worker knows which task it ran; for the other tasks of the batch, no timeout is counted. A
batch runs many tasks before any result is written, and all of them run again after a kill. So only tasks of actors
whose lost attempts may run again are batched.
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
"""Seconds from a message on during which a slot claims other tasks itself: of the message's queue, and tasks that
become ready. The limit makes long processes share the worker with the queue. Celery reads all queues in turn, so
messages of another queue wait at most this long."""

_IN_VAIN = frozenset({Result.STALE_MESSAGE, Result.BLOCKED, Result.REFUSED})

Hints = Callable[[str, int], Sequence[MessageId]]
"""Takes up to this many of the next messages out of a queue; none if Redis is away."""


def no_hints(_queue: str, _most: int) -> Sequence[MessageId]:
    """Return no messages, for a slot that runs only the messages it is given."""
    return ()


@dataclass(frozen=True, slots=True)
class Intake:
    """The state that all slots of one pool process share: their source of further tasks, and the measured task
    times."""

    hints: Hints = no_hints
    pace: Pace = field(default_factory=lambda: Pace(1))
    watch: Watch = field(default_factory=Watch)


class Slot:
    """The attempts in one pool process or thread."""

    def __init__(
        self,
        resources: Resources,
        outbox: Outbox,
        actors: Mapping[str, Actor[..., Any]],
        holder: str,
        host: Host | None = None,
        intake: Intake | None = None,
    ) -> None:
        """Create a slot.

        Args:
            resources: Connections.
            outbox: Applies finished tasks.
            actors: The actors whose queues this worker serves, by name.
            holder: The holder of claims; no other slot may use it while this one runs.
            host: The pool process.
            intake: The source of further tasks. Without it, the slot runs only the tasks of its messages, and tasks
                that become ready through them.
        """
        self._resources, self._outbox = resources, outbox
        self._place, self._intake = Place(resources, actors, holder, host), intake or Intake()

    @property
    def host(self) -> Host:
        """Return the pool process of this slot."""
        return self._place.host

    @property
    def last(self) -> str | None:
        """Return the decision id of the task that was called last."""
        return self._place.trying.last

    def give_back_unrun(self, passes: Mapping[str, str], error: Exception) -> None:
        """Requeue tasks that this process could not run because of this error. They count as no attempt, and return
        after a while.

        Args:
            passes: The pass by decision id.
            error: Why they could not run.

        Raises:
            StoreError: MongoDB was away for longer than the message timeout.
        """
        if passes:
            requeue_unrun(self._resources, passes, self._place.holder, error)

    def run(self, actor: Actor[..., Any], decision_id: str, pass_key: str) -> Result:
        """Run the task of a message if its pass is still current, then further queued tasks of its actor while they are
        short.

        Errors of servers are raised. Further tasks run for GO_ON_FOR seconds at most; the metrics count their results.

        Returns:
            The result of the message's task. BLOCKED means that nothing was done and that the message must be given
            back.
        """
        first, until = MessageId(decision_id, pass_key, None), time.monotonic() + GO_ON_FOR
        if not _is_message(first):
            metrics.STALE.labels("message").inc()
            return Result.STALE_MESSAGE
        capacity = self._room(actor)
        hints = self._intake.hints(actor.name, capacity - 1) if capacity > 1 else ()
        results = self._run(actor, [first, *hints], until)
        result, has_more = results.get(first, Result.CLAIM_LOST), len(hints) == capacity - 1
        self._put_back(hints, results, actor)
        while has_more and time.monotonic() < until and self._goes_on(actor, results):
            capacity = self._room(actor)
            hints = self._intake.hints(actor.name, capacity)
            results = self._run(actor, hints, until)
            self._put_back(hints, results, actor)
            has_more = len(hints) == capacity
        return result

    def _room(self, actor: Actor[..., Any]) -> int:
        """Return how many tasks of an actor to claim now."""
        capacity = self._intake.pace.room(actor.name)
        if capacity == 1 or tracing.is_on():
            return 1
        return capacity if self._place.as_set(actor).preferences.restarts_lost_attempts else 1

    def _goes_on(self, actor: Actor[..., Any], results: Mapping[MessageId, Result]) -> bool:
        """Return whether to claim further tasks. After a round without any useful result, do not.

        Stale messages should come through Celery, because the worker counts only those and discards them in bulk if
        there are many. A task that can't be processed has no result and is given back, so it would be fetched again.
        """
        if not self._intake.pace.is_short(actor.name) or _IN_VAIN.issuperset(results.values()):
            return False
        return not self._place.is_blocked(actor.name)

    def _put_back(
        self, taken: Iterable[MessageId], results: Mapping[MessageId, Result], actor: Actor[..., Any]
    ) -> None:
        """Put back the messages of an actor that was just blocked. They are first in its queue when it is unblocked."""
        blocked = [message for message in taken if results.get(message) is Result.BLOCKED]
        put_back(self._resources, actor.name, [(message.decision_id, message.pass_key) for message in blocked])

    def _run(self, actor: Actor[..., Any], messages: Sequence[MessageId], until: float) -> Mapping[MessageId, Result]:
        """Run the tasks of messages.

        If two messages are of one task, one of them is stale, and nobody knows which. So each is handled alone. If an
        error is raised, the messages that were not begun are put back.

        Returns:
            The results by message. Tasks that were given back are absent.
        """
        valid = [message for message in messages if _is_message(message)]
        results = dict.fromkeys((message for message in messages if not _is_message(message)), Result.STALE_MESSAGE)
        metrics.STALE.labels("message").inc(len(results))
        per_task = Counter(message.decision_id for message in valid)
        batch = [message for message in valid if per_task[message.decision_id] == 1]
        portions = [batch] if batch else []
        portions += [[message] for message in valid if per_task[message.decision_id] > 1]
        waiting = dict.fromkeys(valid)
        try:
            while portions:
                portion = portions.pop(0)
                if self._place.is_blocked(actor.name):
                    results |= dict.fromkeys(portion, Result.BLOCKED)
                    continue
                new_results = self._run_together(self._place.as_set(actor), portion, until, waiting)
                results |= new_results
                portions += [[message] for message in portion if message in waiting]
        except Exception:
            put_back(self._resources, actor.name, [(message.decision_id, message.pass_key) for message in waiting])
            raise
        return results

    def _run_together(
        self, actor: Actor[..., Any], messages: Sequence[MessageId], until: float, waiting: dict[MessageId, None]
    ) -> dict[MessageId, Result]:
        """Run the tasks of messages as one batch.

        Args:
            actor: The actor, with its current settings.
            messages: The messages.
            until: Monotonic time until which ready tasks are run too.
            waiting: The messages that have not been handled. All of `messages` are removed, except those that could not
                be claimed and must be handled alone.

        Returns:
            The results by message. Tasks that were given back are absent.
        """
        passes = {message.decision_id: message.pass_key for message in messages}
        for message in messages:  # if the claim fails, it puts them back itself
            del waiting[message]
        try:
            claimed = self._claim(actor, passes)
        except DamagedRecord as damage:  # then there is one message only; its task is handled at its deadline
            tell(messages[0].decision_id, damage)
            return dict.fromkeys(messages, Result.NOT_READY)
        missing = passes.keys() - {message.id for message in claimed}
        waiting |= dict.fromkeys(message for message in messages if message.decision_id in missing)
        batch = Batch(self._place, self._outbox, self._intake.pace, self._intake.watch)
        batch.run(claimed, until)
        stale = missing - self._still_queued(missing, passes) if len(messages) > 1 else missing
        metrics.STALE.labels("message").inc(len(stale))
        if stale:
            is_timed = actor.preferences.task_limit is not None
            rejected = {key: Conditions.of_claim(actor.name, passes[key], is_timed) for key in stale}
            note_rejected(self._resources, Step.CLAIM, rejected)
        results = {message: Result.STALE_MESSAGE for message in messages if message.decision_id in stale}
        for message in results:
            del waiting[message]
        return results | {
            message: batch.results[message.decision_id] for message in messages if message.decision_id in batch.results
        }

    def _claim(self, actor: Actor[..., Any], passes: Mapping[str, str]) -> list[Decision]:
        """Claim the tasks of messages, within `claim_within` seconds. Afterwards the messages may belong to another
        worker."""
        decisions, preferences, holder = self._resources.store.decisions, actor.preferences, self._place.holder
        try:
            with time_limit(self._resources.settings.claim_within):
                claimed = decisions.claim(
                    actor.name, passes, holder, preferences.worker_timeout, preferences.task_limit
                )
        except StoreError as error:
            if isinstance(error, StoreUnavailable):
                put_back(self._resources, actor.name, passes.items())
            requeue_unrun(self._resources, passes, holder, error)  # the claim may have succeeded
            raise
        for decision in claimed:
            if decision.claimed_at is not None and decision.queued_at is not None:
                waited = (decision.claimed_at - decision.queued_at).total_seconds()
                metrics.QUEUE_SECONDS.labels(decision.actor).observe(max(0.0, waited))
        return claimed

    def _still_queued(self, missing: Collection[str], passes: Mapping[str, str]) -> set[str]:
        """Return the decisions that are still queued under the given pass. They must be claimed alone."""
        queued = self._resources.store.decisions.queued_passes(missing) if missing else {}
        return {key for key, pass_key in queued.items() if pass_key == passes[key]}


def _is_message(message: MessageId) -> bool:
    """Return whether the ids have our form. Other values could act as query operators in MongoDB."""
    return is_record_id(message.decision_id) and is_pass(message.pass_key)
