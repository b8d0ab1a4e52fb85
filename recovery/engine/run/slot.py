"""One attempt: claim, run, finish, then apply; and perhaps the next task of the same process (docs/records.md).

What comes of it is told by name, so that the worker can count it. An actor's exception, of whatever kind, ends its
task with an error, or has it tried again (`retrying`); an exception of the database ends the attempt only, and what it
held is given back.

A task that this one makes ready, and whose queue this worker serves, is claimed at once and run in the same
place (`Slot`): it needs no message, no other worker, and no second look at the value it waited for. If it was
seen being scheduled here, it need not even be read: finishing the one and claiming the other is one round trip.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recovery import metrics, tracing
from recovery.engine.actors.actor import Actor
from recovery.engine.actors.call import Host, pass_of
from recovery.engine.actors.context import attempting
from recovery.engine.apply.outbox import Applier
from recovery.engine.isolation import is_of_servers, tell
from recovery.engine.outages import through_outage
from recovery.engine.resources import Resources
from recovery.engine.run.batches import Batches, observe_wait
from recovery.engine.run.trying import Result, Trying, stale_result
from recovery.engine.steps import ClaimedTask, Ended, Take, put_back, requeue_unrun
from recovery.errors import DamagedRecord, StoreError, StoreUnavailable
from recovery.queue import MessageId
from recovery.records import ActorPreferences, Decision
from recovery.records.ids import is_pass, is_record_id, new_pass, record_id
from recovery.store.views.overview import time_limit

log = logging.getLogger(__name__)

CONTINUE_FOR = 0.5
"""Seconds from a message's claim during which ready tasks are run on the spot. A bound, so that a long process
shares the worker with the queue: it waits as long for others as others wait for it."""


MAX_UNCOUNTED = 20
"""Claims of a task after which it is not given back any more by processes that can't run it. The task itself may be to
blame, and has to end: from then on each claim counts as a lost attempt."""


class Slot:
    """A place that attempts run in: one pool process or thread, on behalf of one holder of claims."""

    def __init__(
        self,
        resources: Resources,
        applier: Applier,
        actors: Mapping[str, Actor[..., Any]],
        holder: str,
        host: Host | None = None,
        batches: Batches | None = None,
    ) -> None:
        """`actors` are those whose queues this worker serves; `holder` is no other slot's while this one runs. With
        `batches` it goes on with what else is queued, where its tasks prove short."""
        self._resources, self._applier, self._actors, self.holder = resources, applier, actors, holder
        self.host = host or Host()
        self.trying = Trying(resources, actors, self.host)
        self._batches = batches
        self._held: Decision | None = None

    def run(self, actor: Actor[..., Any], decision_id: str, pass_key: str) -> Result:
        """Do the task of a message, if its pass is still the current one. Errors of servers are raised.

        The result is that of the message's task; of those run after it, the metrics tell. BLOCKED: nothing was done,
        and the message is to be given back.
        """
        if self._batches is None:
            return self.run_alone(actor, decision_id, pass_key)
        return self._batches.run(self, actor, MessageId(decision_id, pass_key, None))

    def run_alone(self, actor: Actor[..., Any], decision_id: str, pass_key: str, until: float = math.inf) -> Result:
        """The same of this task, and of those that it makes ready: begun for a while, and not after `until`."""
        if not (is_record_id(decision_id) and is_pass(pass_key)):
            metrics.STALE.labels("message").inc()
            return Result.STALE_MESSAGE  # none of ours: to MongoDB it might be a query
        # Held from before it is claimed: a claim whose reply is lost took place, perhaps, and is given back.
        self._held = Decision(id=decision_id, actor=actor.name, pass_key=pass_key)
        try:
            if self._resources.store.preferences.is_blocked(actor.name):
                return Result.BLOCKED
            actor = self.as_set(actor)
            claimed = self._claim(actor.name, decision_id, pass_key, actor.preferences)
            if claimed is None:
                metrics.STALE.labels("message").inc()
                return Result.STALE_MESSAGE
            self._held = claimed
            observe_wait(claimed)
            result = self._run_on(actor, claimed, min(until, time.monotonic() + CONTINUE_FOR))
        except DamagedRecord as damage:  # of the claim itself; at its deadline it is seen to
            tell(decision_id, damage)
            return Result.NOT_READY
        except StoreError as error:
            if self._held is not None:
                self._give_back(self._held, error)
            raise
        except Exception as error:  # its deadline stands, unless it is this process's fault
            if not is_of_servers(error):
                self.was_not_done(self._held, decision_id, error)
            raise
        self.host.was_done()
        return result

    def was_not_done(self, held: Decision | None, decision_id: str, error: Exception) -> None:
        """Note a task that could not be run here for an error that is neither its function's nor a server's."""
        may_be_given_back = held is not None and held.attempts <= MAX_UNCOUNTED
        self.host.was_not_done(
            held.id if held else decision_id, held.pass_key if held and may_be_given_back else None, error
        )

    def give_back_unrun(self, passes: Mapping[str, str], error: Exception) -> None:
        """Requeue {decision: pass} of what this process could not run for this error. It counts as no attempt, and
        comes again after a while. Raises StoreError."""
        if passes:
            requeue_unrun(self._resources, passes, self.holder, error)

    def _claim(self, name: str, decision_id: str, pass_key: str, its: ActorPreferences) -> Decision | None:
        """Claim the task of a message; None: the message is stale. In time, or the message is another worker's."""
        decisions = self._resources.store.decisions
        try:
            with time_limit(self._resources.settings.claim_within):
                return decisions.claim(name, decision_id, pass_key, self.holder, its.worker_timeout, its.task_limit)
        except StoreUnavailable:
            put_back(self._resources, name, [(decision_id, pass_key)])
            raise

    def _run_on(self, actor: Actor[..., Any], claimed: Decision, until: float) -> Result:
        if not self._may_begin(claimed):
            return Result.CLAIM_LOST
        first, following = self._attempt(actor, ClaimedTask(claimed), until)
        while following is not None and self._may_begin(following.decision):
            _, following = self._attempt(self.actor(following.decision.actor), following, until)
        return first

    def _may_begin(self, claimed: Decision) -> bool:
        """Whether a task that was claimed may still be begun. If its actor was blocked meanwhile it is given back,
        because a worker confirms a block once its slots can read of it."""
        if not self._resources.store.preferences.is_blocked(claimed.actor):
            return True
        self._give_back(claimed)
        self._held = None
        return False

    def _give_back(self, decision: Decision, error: Exception | None = None) -> None:
        requeue_unrun(self._resources, {decision.id: pass_of(decision)}, self.holder, error)

    def _attempt(self, actor: Actor[..., Any], here: ClaimedTask, until: float) -> tuple[Result, ClaimedTask | None]:
        """Run a task that is in hand and write its end; what is in hand then."""
        with attempting(here.decision), tracing.attempt(here.decision) as span:
            return self._run_one(actor, here, until, span)

    def _run_one(
        self, actor: Actor[..., Any], here: ClaimedTask, until: float, span: tracing.Traced
    ) -> tuple[Result, ClaimedTask | None]:
        decision, following, began = here.decision, None, time.perf_counter()
        tried = self.trying.run(actor, here, span, self._let_go)
        result, took = tried.result, time.perf_counter() - began
        if tried.ended is not None:
            result, following = self.end(actor, tried.ended, here, until)
        if self._batches is not None:
            self._batches.note_alone(actor, tried, took, time.perf_counter() - began - took)
        if tried.damaged is not None and result is Result.FAILED:  # else it is not its task any more, and all is well
            log.error("%s %s: %s", actor.name, decision.id, tried.damaged)
        metrics.ATTEMPTS.labels(actor.name, result.value).inc()
        span.end_as(result.value, tried.kind)
        told = "%s %s attempt %d: %s in %.3f s"
        log.debug(told, actor.name, decision.id, decision.attempts, result.value, time.perf_counter() - began)
        return result, following

    def _let_go(self) -> None:
        self._held = None

    def end(
        self, actor: Actor[..., Any], ended: Ended, here: ClaimedTask, until: float
    ) -> tuple[Result, ClaimedTask | None]:
        """Finish, and have the effects applied; perhaps claim a task of those that became ready."""
        foreseen = self._foreseen(ended, here) if time.monotonic() < until else None
        accepted, taken = self._finish(actor, ended, foreseen)
        self._held = taken
        if not accepted:
            return stale_result(ended.decision), None
        assert ended.decision.outcome is not None
        result = Result.FAILED if ended.decision.outcome.error else Result.FINISHED
        if taken is not None:
            self.submit(replace(ended, successor=taken.task_id))
        else:
            taken = self._hand_on(ended, may_take=time.monotonic() < until)
        return result, here.followed_by(taken, ended) if taken is not None else None

    def _finish(self, actor: Actor[..., Any], ended: Ended, foreseen: Decision | None) -> tuple[bool, Decision | None]:
        """Write the end of an attempt: whether it was accepted, and the task claimed with it."""
        decisions, decision, outcome = self._resources.store.decisions, ended.decision, ended.decision.outcome
        assert outcome is not None
        options: Any = {
            "accept_first": actor.preferences.accept_first,
            "worker": self.holder,
            "apply_timeout": self._resources.settings.apply_timeout,
        }
        if foreseen is not None:
            its, foreseen = self.actor(foreseen.actor), foreseen.evolve(pass_key=new_pass())
            timeout, limit = its.preferences.worker_timeout, its.preferences.task_limit
            try:
                return decisions.finish_and_claim(decision, outcome, foreseen, timeout, limit, **options)
            except StoreError as error:  # a compare-and-set: written alone below, it says whether it was there already
                log.warning("%s: its end may not be written (%s); trying again", decision.id, error)
        # The work is done; an outage shorter than the time it was given must not throw it away.
        accepted = through_outage(
            self._resources,
            lambda: decisions.finish(decision, outcome, decision.children, **options),
            actor.preferences.worker_timeout,
            decision.id,
        )
        if foreseen is not None:
            self._give_back(foreseen)  # if it was claimed: the answer that would tell was lost
        return accepted, None

    def _foreseen(self, ended: Ended, here: ClaimedTask) -> Decision | None:
        """A task that waits for nothing but this one, is served here, and is known as it was first written."""
        if ended.failed or ended.decision.children:
            return None
        for task, name in ended.task.unlocks.items():
            first = here.scheduled.get(record_id(ended.process_id, task))
            if first is not None and self.may_take(name) and first.call and not (first.eta or first.delay):
                return first
        return None

    def _hand_on(self, ended: Ended, *, may_take: bool) -> Decision | None:
        """Have a decision applied; a task of those that became ready, claimed to be run here."""
        if not (ended.decision.children or ended.task.dependents or ended.failed or ended.decision.restarts):
            return self.submit(ended, beside=True)
        if not may_take:
            return self.submit(ended)
        if ended.task.unlocks and not ended.failed and not ended.decision.children:
            # Ready whatever the graph says: it can learn that later, with what comes next.
            unlocked = {record_id(ended.process_id, task): actor for task, actor in ended.task.unlocks.items()}
            if (taken := self._take(unlocked, ended.decision.epoch)) is not None:
                self.submit(replace(ended, successor=taken.task_id))
                return taken
        return self.submit(ended, self._take)

    def submit(self, ended: Ended, take: Take | None = None, *, beside: bool = False) -> Decision | None:
        """Have the applier apply it, `beside` if nothing becomes ready by it. Its end is accepted: what can't be
        applied, for what another program wrote, is no error of this attempt, and is tried again at its deadline.
        Errors of servers are raised."""
        try:
            return self._applier.submit_beside(ended) if beside else self._applier.submit(ended, take)
        except Exception as error:
            if is_of_servers(error):
                raise
            tell(ended.decision.id, error)
        if take is not None and self._held is not None:  # claimed before it failed
            self._give_back(self._held)
            self._held = None
        return None

    def _take(self, ready: Mapping[str, str], epoch: int) -> Decision | None:
        """Claim the first ready task that this worker serves. One try: whoever was first has it."""
        for decision_id, name in ready.items():
            if self.may_take(name):
                pass_key, decisions = new_pass(), self._resources.store.decisions
                its = self.actor(name).preferences
                self._held = Decision(id=decision_id, actor=name, pass_key=pass_key)
                try:
                    self._held = decisions.claim_ready(
                        name, decision_id, epoch, pass_key, self.holder, its.worker_timeout, its.task_limit
                    )
                except DamagedRecord as damage:  # as with a message
                    tell(decision_id, damage)
                    self._held = None
                return self._held
        return None

    def may_take(self, name: str) -> bool:
        """Whether a task of this actor may be run here now."""
        return name in self._actors and self.host.takes_more and not self._resources.store.preferences.is_blocked(name)

    def actor(self, name: str) -> Actor[..., Any]:
        """An actor that is served here, as it is set now."""
        return self.as_set(self._actors[name])

    def as_set(self, actor: Actor[..., Any]) -> Actor[..., Any]:
        """An actor with the settings that hold now."""
        preferences = self._resources.store.preferences.actor(actor.preferences)
        return actor if preferences is actor.preferences else replace(actor, preferences=preferences)
