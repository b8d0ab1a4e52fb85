"""Where attempts run, and what one claimed task comes to: its function called, and its error looked at. Nothing of its
end is written here, but that it is to be tried again, or that it is not ready.

A place is one pool process or thread, on behalf of one holder of claims.
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
    """What came of a message, or of an attempt."""

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
    """What came of a call: how the task ended, or as what its attempt did without that."""

    ended: Ended | None
    result: Result = Result.CLAIM_LOST
    kind: str | None = None
    """Of the error that there was."""
    damaged: DamagedRecord | None = None
    """For what the task ended with an error, if it was that."""


class Trying:
    """Calls the functions of actors, `actors` being those that are served here."""

    def __init__(self, resources: Resources, actors: Mapping[str, Actor[..., Any]], host: Host) -> None:
        self._resources, self._actors, self._host = resources, actors, host
        self._catalogues = resources.catalogues.all
        self.last: str | None = None
        """The task that was called last."""

    def run(self, actor: Actor[..., Any], here: ClaimedTask, span: tracing.Traced, let_go: Callable[[], None]) -> Tried:
        """Call a task's function. `let_go` is called as soon as the task is not to be given back any more: it is done,
        perhaps, and must not be done again, or somebody else sees to it."""
        self.last = here.decision.id
        pinned_to = here.decision.pinned_to
        if pinned_to is None or self._resources.may_run(pinned_to):
            return self._run(actor, here, span, let_go)
        return self._give_back_pinned(actor, here.decision, pinned_to, let_go)

    def _run(
        self, actor: Actor[..., Any], here: ClaimedTask, span: tracing.Traced, let_go: Callable[[], None]
    ) -> Tried:
        decision = here.decision
        task = Task(id=decision.id, actor=decision.actor, args="", epoch=decision.epoch, fallible=decision.fallible)
        damaged: DamagedRecord | None = None
        said: Answer | None = None
        try:
            task = self._task(decision)
            ran, decision, said = self._call(actor, task, here, let_go)
        except DamagedRecord as damage:
            # Nothing would come of another attempt. If it is its own record, who waits for it is found by their links.
            ran, damaged = CallResult(of_error(damage, decision)), damage
        except NotReady as error:
            if decision.attempts < actor.preferences.max_work_timeouts:
                log.warning("%s %s is not ready (%s): it waits for a look at its graph", actor.name, task.id, error)
                self._wait_again(decision, let_go)
                return Tried(None, Result.NOT_READY)
            ran = CallResult(of_error(error, decision))  # nothing that was found has helped
        except CallRefused as refusal:
            return self._refused(actor, task, decision, refusal, span, let_go)
        if ran is None:
            return Tried(None)
        kind = ran.outcome.error.kind if ran.outcome.error is not None else None
        if ran.found is not None:
            assert said is not None, "its failure was judged"
            ran, retried = retry_or_end(self._resources, actor, decision, ran, said)
            if retried is not None:
                let_go()
            if ran is None:
                return Tried(None, Result.RETRIED if retried else stale_result(decision), kind)
        ended = Ended(task, decision.evolve(outcome=span.keep_with(ran.outcome), children=ran.children))
        return Tried(ended, Result.FAILED if ran.outcome.error else Result.FINISHED, kind, damaged)

    def _call(
        self, actor: Actor[..., Any], task: Task, here: ClaimedTask, let_go: Callable[[], None]
    ) -> tuple[CallResult | None, Decision, Answer | None]:
        """Call a task's function, and again after each failure whose retry is due before the next scan.

        Returns:
            What the last call came to, None if the claim is lost; the decision with the retries so far; and what
            becomes of the last failure, if it failed.
        """
        resources, decision = self._resources, here.decision
        wait: SlotWait | None = None
        began = time.monotonic()
        judge: FailureJudge | None = None
        while True:
            ran = call(resources.store, actor, task, decision, here.outcomes, self._host, self._catalogues)
            if not actor.preferences.restarts_lost_attempts:
                # The work may be done. If its end can't be written, the task is not given back for another attempt, but
                # ends with an error at its deadline.
                let_go()
            if ran is None or ran.found is None:
                return ran, decision, None
            failed_at = time.monotonic()
            judge = judge or FailureJudge(resources, actor, self._actors, decision, self._host)
            ran, said = judge.judge(decision, ran)
            # Whoever reads only warnings learns of each attempt's retries once.
            level = logging.WARNING if wait is None else logging.INFO
            wait = wait or SlotWait(resources, actor, decision, self._host, began)
            if said.state is None or not wait.has_room(said.delay):
                return ran, decision, said
            note_retry(actor, decision, ran, said, level)
            if not wait.wait(said.delay, failed_at):
                return None, decision, None
            decision = decision.evolve(retry=said.state)

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
        if task is None:  # made again from its parent's decision, if it can be
            raise NotReady(f"{decision.id}: there is a decision, but no Task record")
        return task

    def _wait_again(self, decision: Decision, let_go: Callable[[], None]) -> None:
        """A value that its graph has as finished is lost. What finds that also brings this task on; until then it would
        be in the way, and count as an attempt that was lost."""
        store, settings = self._resources.store, self._resources.settings
        if store.decisions.wait_again(decision):
            # When nobody has been at work on the graph for a while: only then absence is a finding.
            store.graphs.advance_deadline(decision.process_id, 1.2 * settings.apply_timeout)
        let_go()


def stale_result(decision: Decision) -> Result:
    """Say and count that a result is not taken."""
    stale_results([decision])
    return Result.STALE_RESULT


def stale_results(decisions: Sequence[Decision]) -> None:
    """The same of many."""
    metrics.STALE.labels("result").inc(len(decisions))
    for one in decisions:
        log.info("%s %s: its result is stale and is discarded", one.actor, one.id)


MAX_UNCOUNTED = 20
"""Claims of a task after which it is not given back any more by processes that can't run it. The task itself may be to
blame, and has to end: from then on each claim counts as a lost attempt."""


class Place:
    """`actors` are those whose queues this worker serves; `holder` is no other place's while this one runs."""

    def __init__(
        self, resources: Resources, actors: Mapping[str, Actor[..., Any]], holder: str, host: Host | None = None
    ) -> None:
        self.resources, self._actors, self.holder = resources, actors, holder
        self.host = host or Host()
        self.trying = Trying(resources, actors, self.host)

    def may_take(self, name: str) -> bool:
        """Whether a task of this actor may be run here now."""
        return name in self._actors and self.host.takes_more and not self.is_blocked(name)

    def is_blocked(self, name: str) -> bool:
        """Whether an operator has blocked an actor, as of now: who blocks it is told that no more of its tasks
        begin."""
        return self.resources.store.preferences.is_blocked(name)

    def actor(self, name: str) -> Actor[..., Any]:
        """An actor that is served here, as it is set now."""
        return self.as_set(self._actors[name])

    def as_set(self, actor: Actor[..., Any]) -> Actor[..., Any]:
        """An actor with the settings that hold now."""
        preferences = self.resources.store.preferences.actor(actor.preferences)
        return actor if preferences is actor.preferences else replace(actor, preferences=preferences)

    def give_back(self, decisions: Iterable[Decision], error: Exception | None = None) -> None:
        """Requeue what is claimed here, or may be, and is not run. Raises StoreError."""
        if passes := {one.id: pass_of(one) for one in decisions}:
            requeue_unrun(self.resources, passes, self.holder, error)

    def was_not_done(self, decision: Decision, error: Exception) -> None:
        """Note a task that could not be run here for an error that is neither its function's nor a server's."""
        may_be_given_back = decision.attempts <= MAX_UNCOUNTED
        self.host.was_not_done(decision.id, decision.pass_key if may_be_given_back else None, error)
