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
import time
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from recovery import metrics, tracing
from recovery.engine.actors.actor import Actor
from recovery.engine.actors.call import CallResult, Host, call, of_error, pass_of
from recovery.engine.actors.context import attempting
from recovery.engine.actors.resolve import NotReady
from recovery.engine.isolation import is_of_servers, tell
from recovery.engine.lifecycle.applier import Applier
from recovery.engine.lifecycle.retrying import retry_or_end
from recovery.engine.lifecycle.steps import ClaimedTask, Ended, Take, push
from recovery.engine.outages import through_outage
from recovery.engine.resources import Resources
from recovery.errors import DamagedRecord, StoreError
from recovery.metrics import counting
from recovery.records import Decision, Task
from recovery.records.ids import is_pass, is_record_id, new_pass, record_id
from recovery.store import Queued

log = logging.getLogger(__name__)

CONTINUE_FOR = 0.5
"""Seconds from a message's claim during which ready tasks are run on the spot. A bound, so that a long process
shares the worker with the queue: it waits as long for others as others wait for it."""


class Result(StrEnum):
    """What came of a message, or of an attempt."""

    FINISHED = "finished"
    FAILED = "failed"
    RETRIED = "retried"
    STALE_MESSAGE = "stale message"
    BLOCKED = "blocked"
    STALE_RESULT = "stale result"
    CLAIM_LOST = "claim lost"
    NOT_READY = "not ready"


class Slot:
    """A place that attempts run in: one pool process or thread, on behalf of one holder of claims."""

    def __init__(
        self,
        resources: Resources,
        applier: Applier,
        actors: Mapping[str, Actor[..., Any]],
        holder: str,
        host: Host | None = None,
    ) -> None:
        """`actors` are those whose queues this worker serves; `holder` is no other slot's while this one runs."""
        self._resources, self._applier, self._actors, self._holder = resources, applier, actors, holder
        self._catalogues = resources.catalogues.all
        self._host = host or Host()
        self._held: Decision | None = None

    def run(self, actor: Actor[..., Any], decision_id: str, pass_key: str) -> Result:
        """Do the task of a message, if its pass is still the current one. Errors of servers are raised.

        The result is that of the message's task; of those run after it, the metrics tell. BLOCKED: nothing was done,
        and the message is to be given back.
        """
        if not (is_record_id(decision_id) and is_pass(pass_key)):
            metrics.STALE.labels("message").inc()
            return Result.STALE_MESSAGE  # none of ours: to MongoDB it might be a query
        # Held from before it is claimed: a claim whose reply is lost took place, perhaps, and is given back.
        self._held = Decision(id=decision_id, actor=actor.name, pass_key=pass_key)
        try:
            if self._resources.store.preferences.is_blocked(actor.name):
                return Result.BLOCKED
            actor = self._as_set(actor)
            decisions, timeout = self._resources.store.decisions, actor.preferences.worker_timeout
            limit = actor.preferences.task_limit
            claimed = decisions.claim(actor.name, decision_id, pass_key, self._holder, timeout, limit)
            if claimed is None:
                metrics.STALE.labels("message").inc()
                return Result.STALE_MESSAGE
            if claimed.claimed_at is not None and claimed.queued_at is not None:
                waited = (claimed.claimed_at - claimed.queued_at).total_seconds()
                metrics.QUEUE_SECONDS.labels(actor.name).observe(max(0.0, waited))
            return self._run_on(actor, claimed)
        except DamagedRecord as damage:  # of the claim itself; at its deadline it is seen to
            tell(decision_id, damage)
            return Result.NOT_READY
        except StoreError:
            if self._held is not None:
                self._give_back(self._held)
            raise

    def _run_on(self, actor: Actor[..., Any], claimed: Decision) -> Result:
        until = time.monotonic() + CONTINUE_FOR
        first, following = self._attempt(actor, ClaimedTask(claimed), until)
        while following is not None:
            _, following = self._attempt(self._as_set(self._actors[following.decision.actor]), following, until)
        return first

    def _give_back(self, decision: Decision) -> None:
        """Requeue what was claimed and is not run, or whose end could not be written: its holder lives, so nobody
        else would before its deadline."""
        timeout = self._resources.settings.message_timeout

        def give() -> list[Queued]:
            held = pass_of(decision)
            return self._resources.store.requeues.requeue_unrun(decision.id, held, self._holder, new_pass())

        queued = through_outage(self._resources, give, timeout, decision.id)
        push(self._resources, queued)
        counting.requeued("GIVEN_BACK", [one.actor for one in queued])

    def _attempt(self, actor: Actor[..., Any], here: ClaimedTask, until: float) -> tuple[Result, ClaimedTask | None]:
        """Run a task that is in hand and write its end; what is in hand then."""
        with attempting(here.decision), tracing.attempt(here.decision) as span:
            return self._run_one(actor, here, until, span)

    def _run_one(
        self, actor: Actor[..., Any], here: ClaimedTask, until: float, span: tracing.Traced
    ) -> tuple[Result, ClaimedTask | None]:
        decision = here.decision
        task = Task(id=decision.id, actor=decision.actor, args="", epoch=decision.epoch, fallible=decision.fallible)
        result, following, began = Result.CLAIM_LOST, None, time.perf_counter()
        damaged: DamagedRecord | None = None
        try:
            task = self._task(decision)
            ran = call(self._resources.store, actor, task, decision, here.outcomes, self._host, self._catalogues)
            if not actor.preferences.restarts_lost_attempts:
                # Done, perhaps: where its end can't be written, it is not given back for another one, but ends with an
                # error at its deadline.
                self._held = None
        except DamagedRecord as damage:
            # Nothing would come of another attempt. If it is its own record, who waits for it is found by their links.
            ran, damaged = CallResult(of_error(damage, decision)), damage
        except NotReady as error:
            if decision.attempts >= actor.preferences.max_work_timeouts:  # nothing that was found has helped
                ran = CallResult(of_error(error, decision))
            else:
                log.warning("%s %s is not ready (%s): it waits for a look at its graph", actor.name, task.id, error)
                self._wait_again(decision)
                ran, result = None, Result.NOT_READY
        failure = ran.outcome.error if ran is not None else None
        if ran is not None and ran.found is not None:
            ran, retried = retry_or_end(self._resources, actor, self._actors, decision, ran, self._host)
            if retried is not None:
                self._held, result = None, Result.RETRIED if retried else _stale_result(decision)
        if ran is not None:
            ended = Ended(task, decision.evolve(outcome=span.keep_with(ran.outcome), children=ran.children))
            result, following = self._end(actor, ended, here, until)
        if damaged is not None and result is Result.FAILED:  # else it is not its task any more, and nothing is wrong
            log.error("%s %s: %s", actor.name, decision.id, damaged)
        metrics.ATTEMPTS.labels(actor.name, result.value).inc()
        span.end_as(result.value, failure.kind if failure is not None else None)
        seconds = time.perf_counter() - began
        log.info("%s %s attempt %d: %s in %.3f s", actor.name, decision.id, decision.attempts, result.value, seconds)
        return result, following

    def _task(self, decision: Decision) -> Task:
        task = decision.task() or self._resources.store.tasks.get(decision.id)
        if task is None:  # made again from its parent's decision, if it can be
            raise NotReady(f"{decision.id}: there is a decision, but no Task record")
        return task

    def _wait_again(self, decision: Decision) -> None:
        """A value that its graph has as finished is lost. What finds that also brings this task on; until then it would
        be in the way, and count as an attempt that was lost."""
        store, settings = self._resources.store, self._resources.settings
        if store.decisions.wait_again(decision):
            # When nobody has been at work on the graph for a while: only then absence is a finding.
            store.graphs.advance_deadline(decision.process_id, 1.2 * settings.apply_timeout)
        self._held = None

    def _end(
        self, actor: Actor[..., Any], ended: Ended, here: ClaimedTask, until: float
    ) -> tuple[Result, ClaimedTask | None]:
        """Finish, and have the effects applied; perhaps claim a task of those that became ready."""
        foreseen = self._foreseen(ended, here) if time.monotonic() < until else None
        accepted, taken = self._finish(actor, ended, foreseen)
        self._held = taken
        if not accepted:
            return _stale_result(ended.decision), None
        assert ended.decision.outcome is not None
        result = Result.FAILED if ended.decision.outcome.error else Result.FINISHED
        if taken is not None:
            self._submit(replace(ended, successor=taken.task_id))
        else:
            taken = self._hand_on(ended, may_take=time.monotonic() < until)
        return result, here.followed_by(taken, ended) if taken is not None else None

    def _finish(self, actor: Actor[..., Any], ended: Ended, foreseen: Decision | None) -> tuple[bool, Decision | None]:
        """Write the end of an attempt: whether it was accepted, and the task claimed with it."""
        decisions, decision, outcome = self._resources.store.decisions, ended.decision, ended.decision.outcome
        assert outcome is not None
        options: Any = {
            "accept_first": actor.preferences.accept_first,
            "worker": self._holder,
            "apply_timeout": self._resources.settings.apply_timeout,
        }
        if foreseen is not None:
            its, foreseen = self._as_set(self._actors[foreseen.actor]), foreseen.evolve(pass_key=new_pass())
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
            if first is not None and self._may_take(name) and first.call and not (first.eta or first.delay):
                return first
        return None

    def _hand_on(self, ended: Ended, *, may_take: bool) -> Decision | None:
        """Have a decision applied; a task of those that became ready, claimed to be run here."""
        if not may_take:
            return self._submit(ended)
        if ended.task.unlocks and not ended.failed and not ended.decision.children:
            # Ready whatever the graph says: it can learn that later, with what comes next.
            unlocked = {record_id(ended.process_id, task): actor for task, actor in ended.task.unlocks.items()}
            if (taken := self._take(unlocked, ended.decision.epoch)) is not None:
                self._submit(replace(ended, successor=taken.task_id))
                return taken
        return self._submit(ended, self._take)

    def _submit(self, ended: Ended, take: Take | None = None) -> Decision | None:
        """Have the applier apply it. Its end is accepted: what can't be applied, for what another program wrote, is
        no error of this attempt, and is tried again at its deadline. Errors of servers are raised."""
        try:
            return self._applier.submit(ended, take)
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
            if self._may_take(name):
                pass_key, decisions = new_pass(), self._resources.store.decisions
                its = self._as_set(self._actors[name]).preferences
                self._held = Decision(id=decision_id, actor=name, pass_key=pass_key)
                try:
                    self._held = decisions.claim_ready(
                        name, decision_id, epoch, pass_key, self._holder, its.worker_timeout, its.task_limit
                    )
                except DamagedRecord as damage:  # as with a message
                    tell(decision_id, damage)
                    self._held = None
                return self._held
        return None

    def _may_take(self, name: str) -> bool:
        return name in self._actors and not self._resources.store.preferences.is_blocked(name)

    def _as_set(self, actor: Actor[..., Any]) -> Actor[..., Any]:
        """An actor with the settings that hold now."""
        preferences = self._resources.store.preferences.actor(actor.preferences)
        return actor if preferences is actor.preferences else replace(actor, preferences=preferences)


def _stale_result(decision: Decision) -> Result:
    metrics.STALE.labels("result").inc()
    log.info("%s %s: its result is stale and is discarded", decision.actor, decision.id)
    return Result.STALE_RESULT
