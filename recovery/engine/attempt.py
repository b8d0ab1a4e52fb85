"""One attempt: claim, run, finish (design §3), then apply; and perhaps the next task of the same process.

What comes of it is told by name, so that the worker can count it. An actor's exception ends its task with an
error; an exception of the database ends the attempt only, and what it held is given back.

A task that this one makes ready, and whose queue this worker serves, is claimed at once and run in the same
place (`Slot`): it needs no message, no other worker, and no second look at the value it waited for.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from pymongo.errors import PyMongoError

from recovery import metrics
from recovery.engine.actor import Actor
from recovery.engine.applier import Applier
from recovery.engine.apply import Ended
from recovery.engine.context import Attempt
from recovery.engine.dispatch import push
from recovery.engine.heartbeats import beating
from recovery.engine.patience import patiently
from recovery.engine.resolve import resolve
from recovery.engine.resources import Resources
from recovery.errors import ClaimLost
from recovery.records import Child, Decision, ErrorInfo, Outcome, Task
from recovery.records.ids import new_pass, record_id
from recovery.records.values import decode, encode
from recovery.store import Queued

log = logging.getLogger(__name__)

MESSAGE_LENGTH = 500
STACK_BYTES = 20_000
"""Of an error's stack its end is kept: with a process's arguments it has to fit into one record."""
CONTINUE_FOR = 0.5
"""Seconds from a message's claim during which ready tasks are run on the spot. A bound, so that a long process
shares the worker with the queue: it waits as long for others as others wait for it."""


class Result(StrEnum):
    """What came of a message, or of an attempt."""

    FINISHED = "finished"
    FAILED = "failed"
    STALE_MESSAGE = "stale message"
    STALE_RESULT = "stale result"
    CLAIM_LOST = "claim lost"


class Slot:
    """A place that attempts run in: one pool process or thread, on behalf of one holder of claims."""

    def __init__(
        self, resources: Resources, applier: Applier, actors: Mapping[str, Actor[..., Any]], holder: str
    ) -> None:
        """`actors` are those whose queues this worker serves."""
        self._resources, self._applier, self._actors, self._holder = resources, applier, actors, holder
        self._in_hand: Decision | None = None

    def run(self, actor: Actor[..., Any], decision_id: str, pass_key: str) -> Result:
        """Do the task of a message, if its pass is still the current one. Errors of servers are raised.

        The result is that of the message's task; of those run after it, the metrics tell.
        """
        decisions = self._resources.store.decisions
        claimed = decisions.claim(decision_id, pass_key, self._holder, actor.preferences.worker_timeout)
        if claimed is None:
            metrics.STALE.labels("message").inc()
            return Result.STALE_MESSAGE
        self._in_hand = claimed
        try:
            return self._run_on(actor, claimed)
        except PyMongoError:
            self._give_back()
            raise

    def _run_on(self, actor: Actor[..., Any], claimed: Decision) -> Result:
        until = time.monotonic() + CONTINUE_FOR
        first, successor = self._attempt(actor, claimed, {}, until)
        while successor is not None:
            decision, known = successor
            _, successor = self._attempt(self._actors[decision.actor], decision, known, until)
        return first

    def _give_back(self) -> None:
        """Requeue what was claimed and is not run, or whose end could not be written: its holder lives, so nobody
        else would before its deadline."""
        decision = self._in_hand
        if decision is None:
            return
        patience = self._resources.settings.message_timeout

        def give() -> list[Queued]:
            return self._resources.store.requeues.not_run(decision.id, _pass(decision), new_pass())

        queued = patiently(give, patience, decision.id)
        push(self._resources, queued)
        metrics.REQUEUES.labels("GIVEN_BACK").inc(len(queued))

    def _attempt(
        self, actor: Actor[..., Any], decision: Decision, known: dict[str, Outcome], until: float
    ) -> tuple[Result, tuple[Decision, dict[str, Outcome]] | None]:
        task = decision.task() or self._resources.store.tasks.get(decision.id)
        if task is None:
            raise LookupError(f"{decision.id}: there is a decision, but no Task record")
        result, outcome, children = self._work(actor, task, decision, known)
        successor = None
        if outcome is not None:
            ended = Ended(task, decision.evolve(outcome=outcome, children=children))
            taken = self._hand_on(ended, may_take=time.monotonic() < until)
            successor = (taken, {decision.task_id: outcome}) if taken is not None else None
        metrics.ATTEMPTS.labels(actor.name, result.value).inc()
        return result, successor

    def _work(
        self, actor: Actor[..., Any], task: Task, decision: Decision, known: dict[str, Outcome]
    ) -> tuple[Result, Outcome | None, tuple[Child, ...]]:
        """Run and finish; what was accepted, if it was."""
        values = resolve(self._resources.store, decision.process_id, task.deps, known) if task.deps else {}
        positional, named = decode(task.args, values.__getitem__)
        attempt = Attempt(self._resources.store, decision, actor.preferences)
        children: tuple[Child, ...] = ()
        began = time.perf_counter()
        try:
            with attempt, beating(attempt):
                outcome = _outcome(attempt, actor.function(*positional, **named))
                children = attempt.children()
        except ClaimLost:
            metrics.STALE.labels("claim lost").inc()
            return Result.CLAIM_LOST, None, ()
        except Exception as error:
            described = _describe(error, decision)
            outcome = Outcome(pass_key=_pass(decision), error=described)
            log.warning("%s %s: %s\n%s", actor.name, decision.id, described.message, described.stack)
        finally:
            metrics.ATTEMPT_SECONDS.labels(actor.name).observe(time.perf_counter() - began)

        def finish() -> bool:
            return self._resources.store.decisions.finish(
                decision,
                outcome,
                children,
                accept_first=actor.preferences.accept_first,
                worker=self._holder,
                apply_timeout=self._resources.settings.apply_timeout,
            )

        # The work is done; an outage shorter than the time it was given must not throw it away.
        accepted = patiently(finish, actor.preferences.worker_timeout, decision.id)
        self._in_hand = None
        if not accepted:
            metrics.STALE.labels("result").inc()
            log.info("%s %s: its result came too late and is dropped", actor.name, decision.id)
            return Result.STALE_RESULT, None, ()
        return (Result.FAILED if outcome.error else Result.FINISHED), outcome, children

    def _hand_on(self, ended: Ended, *, may_take: bool) -> Decision | None:
        """Have a decision applied; a task of those that became ready, claimed to be run here."""
        if not may_take:
            return self._applier.submit(ended)
        if ended.task.unlocks and not ended.failed and not ended.decision.children:
            # Ready whatever the graph says: it can learn that later, with what comes next.
            unlocked = {record_id(ended.process_id, task): actor for task, actor in ended.task.unlocks.items()}
            if (taken := self._take(unlocked)) is not None:
                self._applier.submit(replace(ended, successor=taken.task_id))
                return taken
        return self._applier.submit(ended, self._take)

    def _take(self, ready: Mapping[str, str]) -> Decision | None:
        """Claim the first ready task that this worker serves. One try: whoever was first has it."""
        for decision_id, name in ready.items():
            if (actor := self._actors.get(name)) is not None:
                timeout, decisions = actor.preferences.worker_timeout, self._resources.store.decisions
                self._in_hand = decisions.claim_ready(decision_id, new_pass(), self._holder, timeout)
                return self._in_hand
        return None


def _outcome(attempt: Attempt, value: Any) -> Outcome:
    """The accepted form of a returned value. Raises NotEncodable, TooLarge, InputError: the actor's errors."""
    what = f"value returned by {attempt.decision.actor}"
    encoded = encode(value, what)
    attempt.add_value(encoded, what)
    return Outcome(pass_key=_pass(attempt.decision), value=encoded.text, waits=encoded.promises)


def _pass(decision: Decision) -> str:
    assert decision.pass_key is not None, "a claimed decision has a pass"
    return decision.pass_key


def _describe(error: Exception, decision: Decision) -> ErrorInfo:
    stack = "".join(traceback.format_exception(error))
    return ErrorInfo(
        kind=type(error).__name__,
        message=_text(error)[:MESSAGE_LENGTH].encode(errors="replace").decode(),
        task=decision.task_id,
        actor=decision.actor,
        stack=stack.encode(errors="replace")[-STACK_BYTES:].decode(errors="ignore"),
    )


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception as failure:  # the application's own __str__
        return f"(its text can't be had: {type(failure).__name__})"
