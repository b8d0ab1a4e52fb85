"""One attempt: claim, run, finish (design §3), then apply.

What comes of it is told by name, so that the worker can count it. An actor's exception ends its task with an
error; an exception of the database or of this library ends the attempt only, and the deadline of the decision
brings another.
"""

from __future__ import annotations

import logging
import time
import traceback
from enum import StrEnum
from typing import Any

from recovery import metrics
from recovery.engine.actor import Actor
from recovery.engine.apply import Applier, Ended
from recovery.engine.context import Attempt
from recovery.engine.heartbeats import beating
from recovery.engine.resolve import resolve
from recovery.engine.resources import Resources
from recovery.errors import ClaimLost
from recovery.records import Child, Decision, ErrorInfo, Outcome, Task
from recovery.records.values import decode, encode

log = logging.getLogger(__name__)

MESSAGE_LENGTH = 500
STACK_LENGTH = 20_000


class Result(StrEnum):
    """What came of a message."""

    FINISHED = "finished"
    FAILED = "failed"
    STALE_MESSAGE = "stale message"
    STALE_RESULT = "stale result"
    CLAIM_LOST = "claim lost"


def run(
    resources: Resources,
    applier: Applier,
    actor: Actor[..., Any],
    decision_id: str,
    pass_key: str,
    worker: str,
) -> Result:
    """Do the task of a message, if its pass is still the current one. Errors of servers are raised."""
    decision = resources.store.decisions.claim(decision_id, pass_key, worker, actor.preferences.worker_timeout)
    if decision is None:
        metrics.STALE.labels("message").inc()
        return Result.STALE_MESSAGE
    task = resources.store.tasks.get(decision_id)
    if task is None:
        raise LookupError(f"{decision_id}: there is a decision, but no Task record")
    result = _work(resources, applier, actor, task, decision, worker)
    metrics.ATTEMPTS.labels(actor.name, result.value).inc()
    return result


def _work(
    resources: Resources,
    applier: Applier,
    actor: Actor[..., Any],
    task: Task,
    decision: Decision,
    worker: str,
) -> Result:
    values = resolve(resources.store, decision.process_id, task.deps) if task.deps else {}
    positional, named = decode(task.args, values.__getitem__)
    attempt = Attempt(resources.store, decision, actor.preferences)
    assert decision.pass_key is not None
    children: tuple[Child, ...] = ()
    began = time.perf_counter()
    try:
        with attempt, beating(attempt):
            value = actor.function(*positional, **named)
            outcome = _outcome(attempt, value)
            children = attempt.children()
    except ClaimLost:
        metrics.STALE.labels("claim lost").inc()
        return Result.CLAIM_LOST
    except Exception as error:
        outcome = Outcome(pass_key=decision.pass_key, error=_describe(error, decision))
        log.warning("%s %s: %s", actor.name, decision.id, error, exc_info=True)
    finally:
        metrics.ATTEMPT_SECONDS.labels(actor.name).observe(time.perf_counter() - began)
    accepted = resources.store.decisions.finish(
        decision,
        outcome,
        children,
        accept_first=actor.preferences.accept_first,
        worker=worker,
        apply_timeout=resources.settings.apply_timeout,
    )
    if not accepted:
        metrics.STALE.labels("result").inc()
        log.info("%s %s: its result came too late and is dropped", actor.name, decision.id)
        return Result.STALE_RESULT
    applier.submit(Ended(task, decision.evolve(outcome=outcome, children=children)))
    return Result.FAILED if outcome.error else Result.FINISHED


def _outcome(attempt: Attempt, value: Any) -> Outcome:
    """The accepted form of a returned value. Raises NotEncodable, TooLarge, InputError: the actor's errors."""
    what = f"value returned by {attempt.decision.actor}"
    encoded = encode(value, what)
    attempt.check_promises(encoded, what)
    attempt.add_size(len(encoded.text.encode()), what)
    assert attempt.decision.pass_key is not None
    return Outcome(pass_key=attempt.decision.pass_key, value=encoded.text, waits=encoded.promises)


def _describe(error: Exception, decision: Decision) -> ErrorInfo:
    stack = "".join(traceback.format_exception(error))
    return ErrorInfo(
        kind=type(error).__name__,
        message=str(error)[:MESSAGE_LENGTH].encode(errors="replace").decode(),
        task=decision.task_id,
        actor=decision.actor,
        stack=stack[-STACK_LENGTH:].encode(errors="replace").decode(),
    )
