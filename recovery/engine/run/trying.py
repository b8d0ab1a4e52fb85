"""Runs one claimed task: its function is called, and its error is classified.

The end of the task is not written here. Only a retry, and the return of a task that is not ready or is refused, are. A
place is one pool process or thread, on behalf of one holder of claims.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from recovery import metrics, tracing
from recovery.engine.actors.actor import Actor
from recovery.engine.actors.call import CallResult, Host, call, of_error, pass_of
from recovery.engine.actors.resolve import CallRefused, NotReady
from recovery.engine.resources import Resources
from recovery.engine.run.in_place import SlotWait
from recovery.engine.run.refusing import give_back_or_end, give_back_pinned
from recovery.engine.run.retrying import FailureJudge, note_retry, retry_or_end
from recovery.engine.steps import ClaimedTask, Ended, requeue_unrun
from recovery.errors import DamagedRecord
from recovery.records import Decision, Task
from recovery.retry.attempts import Answer

log = logging.getLogger(__name__)


class Result(StrEnum):
    """The result of a message or of an attempt."""

    FINISHED = "finished"
    FAILED = "failed"
    RETRIED = "retried"
    STALE_MESSAGE = "stale message"
    BLOCKED = "blocked"
    STALE_RESULT = "stale result"
    CLAIM_LOST = "claim lost"
    NOT_READY = "not ready"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of a call: how the task ended, or what its attempt did instead."""

    ended: Ended | None
    result: Result = Result.CLAIM_LOST
    kind: str | None = None
    """Kind of the error, if there was one."""
    damaged: DamagedRecord | None = None
    """The damaged record, if that is why the task ended with an error."""


class Trying:
    """Calls the functions of the actors that this worker serves, given by name."""

    def __init__(self, resources: Resources, actors: Mapping[str, Actor[..., Any]], host: Host) -> None:
        self._resources, self._actors, self._host = resources, actors, host
        self._catalogues = resources.catalogues.all
        self.last: str | None = None
        """The decision id of the task that was called last."""

    def run(self, actor: Actor[..., Any], here: ClaimedTask, span: tracing.Traced, let_go: Callable[[], None]) -> Tried:
        """Run a claimed task.

        Args:
            actor: The actor of the task.
            here: The claimed task.
            span: The open span of the attempt.
            let_go: Called as soon as the task must not be given back any more: it may have been done and must not run
                twice, or it is no longer this worker's.
        """
        self.last = here.decision.id
        pinned_to = here.decision.pinned_to
        if pinned_to is None or self._resources.may_run(pinned_to):
            return self._run(actor, here, span, let_go)
        return self._give_back_pinned(actor, here.decision, pinned_to, let_go)

    def _run(
        self, actor: Actor[..., Any], claimed: ClaimedTask, span: tracing.Traced, let_go: Callable[[], None]
    ) -> Tried:
        decision = claimed.decision
        task = Task(id=decision.id, actor=decision.actor, args="", epoch=decision.epoch, fallible=decision.fallible)
        damaged: DamagedRecord | None = None
        answer: Answer | None = None
        try:
            task = self._task(decision)
            ran, decision, answer = self._call(actor, task, claimed, let_go)
        except DamagedRecord as error:
            # Another attempt would fail too. If the task's own record is damaged, links still lead to its dependents.
            ran, damaged = CallResult(of_error(error, decision)), error
        except NotReady as error:
            if decision.attempts < actor.preferences.max_work_timeouts:
                log.warning("%s %s is not ready (%s): it waits until its graph is checked", actor.name, task.id, error)
                self._wait_again(decision, let_go)
                return Tried(None, Result.NOT_READY)
            ran = CallResult(of_error(error, decision))  # the checks of its graph have not helped
        except CallRefused as refusal:
            return self._refused(actor, task, decision, refusal, span, let_go)
        if ran is None:
            return Tried(None)
        kind = ran.outcome.error.kind if ran.outcome.error is not None else None
        if ran.found is not None:
            assert answer is not None, "its failure was judged"
            ran, retried = retry_or_end(self._resources, actor, decision, ran, answer)
            if retried is not None:
                let_go()
            if ran is None:
                return Tried(None, Result.RETRIED if retried else stale_result(decision), kind)
        ended = Ended(task, decision.evolve(outcome=span.keep_with(ran.outcome), children=ran.children))
        return Tried(ended, Result.FAILED if ran.outcome.error else Result.FINISHED, kind, damaged)

    def _call(
        self, actor: Actor[..., Any], task: Task, claimed: ClaimedTask, let_go: Callable[[], None]
    ) -> tuple[CallResult | None, Decision, Answer | None]:
        """Call a task's function, and again after each failure whose retry is due before the next scan.

        Returns:
            The last call, or None if the claim is lost; the decision with the retries so far; and, if the last call
            failed, whether and when it is retried.
        """
        resources, decision = self._resources, claimed.decision
        wait: SlotWait | None = None
        started = time.monotonic()
        judge: FailureJudge | None = None
        while True:
            ran = call(resources.store, actor, task, decision, claimed.outcomes, self._host, self._catalogues)
            if not actor.preferences.restarts_lost_attempts:
                # The work may have been done. If its result can't be written, the task must not be given back for
                # another attempt. It ends with an error at its deadline.
                let_go()
            if ran is None or ran.found is None:
                return ran, decision, None
            failed_at = time.monotonic()
            judge = judge or FailureJudge(resources, actor, self._actors, decision, self._host)
            ran, answer = judge.judge(decision, ran)
            # One warning per attempt: further retries in the slot are logged at level INFO.
            level = logging.WARNING if wait is None else logging.INFO
            wait = wait or SlotWait(resources, actor, decision, self._host, started)
            if answer.state is None or not wait.has_room(answer.delay):
                return ran, decision, answer
            note_retry(actor, decision, ran, answer, level)
            if not wait.wait(answer.delay, failed_at):
                return None, decision, None
            decision = decision.evolve(retry=answer.state)

    def _give_back_pinned(
        self, actor: Actor[..., Any], decision: Decision, pinned_to: str, let_go: Callable[[], None]
    ) -> Tried:
        """Give back a task that is pinned to a version which this worker's code does not run."""
        given_back = give_back_pinned(self._resources, actor, decision, pinned_to)
        let_go()
        return Tried(None, Result.REFUSED if given_back else stale_result(decision))

    def _refused(
        self,
        actor: Actor[..., Any],
        task: Task,
        decision: Decision,
        refusal: CallRefused,
        span: tracing.Traced,
        let_go: Callable[[], None],
    ) -> Tried:
        """Give back a task whose call the code of this worker does not accept, or end it if no version accepts it."""
        outcome, given_back = give_back_or_end(self._resources, actor, decision, refusal)
        if outcome is None:
            let_go()
            return Tried(None, Result.REFUSED if given_back else stale_result(decision))
        ended = Ended(task, decision.evolve(outcome=span.keep_with(outcome)))
        return Tried(ended, Result.FAILED, outcome.error.kind if outcome.error is not None else None)

    def _task(self, decision: Decision) -> Task:
        task = decision.task() or self._resources.store.tasks.get(decision.id)
        if task is None:  # the graph's check restores it from its parent's decision if possible
            raise NotReady(f"{decision.id}: there is a decision, but no Task record")
        return task

    def _wait_again(self, decision: Decision, let_go: Callable[[], None]) -> None:
        """Return a task to the state waiting because a value that its graph has as finished is lost.

        The check of the graph that finds the loss also enqueues this task again. Until then it must not be claimed
        again, nor count as a lost attempt.
        """
        store, settings = self._resources.store, self._resources.settings
        if store.decisions.wait_again(decision):
            # Check the graph later, because a missing record proves a loss only if nobody has worked on the graph
            # meanwhile.
            store.graphs.advance_deadline(decision.process_id, 1.2 * settings.apply_timeout)
        let_go()


def stale_result(decision: Decision) -> Result:
    """Log and count that a result is discarded as stale. Return the result."""
    stale_results([decision])
    return Result.STALE_RESULT


def stale_results(decisions: Sequence[Decision]) -> None:
    """Log and count that the results of these decisions are discarded as stale."""
    metrics.STALE.labels("result").inc(len(decisions))
    for decision in decisions:
        log.info("%s %s: its result is stale and is discarded", decision.actor, decision.id)


MAX_UNCOUNTED = 20
"""Number of attempts up to which a process that can't run a task gives it back. After that, each claim that can't run
it counts as a lost attempt. Otherwise a task that is itself the cause would never end."""


class Place:
    """A pool process or thread in which attempts run.

    `actors` are the actors whose queues this worker serves. `holder` must not be used by another place while this one
    runs.
    """

    def __init__(
        self, resources: Resources, actors: Mapping[str, Actor[..., Any]], holder: str, host: Host | None = None
    ) -> None:
        self.resources, self._actors, self.holder = resources, actors, holder
        self.host = host or Host()
        self.trying = Trying(resources, actors, self.host)

    def may_take(self, name: str) -> bool:
        """Return whether a task of this actor may run here now."""
        return name in self._actors and self.host.takes_more and not self.is_blocked(name)

    def is_blocked(self, name: str) -> bool:
        """Return whether an operator has blocked the actor. This is read anew, because the operator was told that no
        further task begins."""
        return self.resources.store.preferences.is_blocked(name)

    def actor(self, name: str) -> Actor[..., Any]:
        """Return an actor that is served here, with its current settings."""
        return self.as_set(self._actors[name])

    def as_set(self, actor: Actor[..., Any]) -> Actor[..., Any]:
        """Return the actor with its current settings."""
        preferences = self.resources.store.preferences.actor(actor.preferences)
        return actor if preferences is actor.preferences else replace(actor, preferences=preferences)

    def give_back(self, decisions: Iterable[Decision], error: Exception | None = None) -> None:
        """Requeue decisions that are, or may be, claimed here and do not run.

        Raises:
            StoreError: MongoDB was away for longer than the message timeout.
        """
        if passes := {decision.id: pass_of(decision) for decision in decisions}:
            requeue_unrun(self.resources, passes, self.holder, error)

    def was_not_done(self, decision: Decision, error: Exception) -> None:
        """Note a task that could not run here because of an error that is neither its function's nor a server's."""
        may_be_given_back = decision.attempts <= MAX_UNCOUNTED
        self.host.was_not_done(decision.id, decision.pass_key if may_be_given_back else None, error)
