"""An attempt that failed: retried in its slot, retried later, or the end of its task.

    working → delayed, with the state of its retries and the time of the next one; the Decision scanner queues it (DUE)

A delay shorter than the scan interval is waited for in the slot (`in_place`). During a longer one no worker is held:
the count of retries stands in the decision, in the same write that ends the attempt. Cut off before that write, the
attempt is one that brought no answer.

Metrics: recovery_retries, recovery_retries_refused.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from recovery import metrics
from recovery.engine.actors.actor import Actor
from recovery.engine.actors.call import CallResult, Host
from recovery.engine.actors.strategies import is_named
from recovery.engine.isolation import tell
from recovery.engine.outages import through_outage
from recovery.engine.resources import Resources
from recovery.errors import DamagedRecord
from recovery.log_lines import LINES
from recovery.records import Decision, RetryOptions
from recovery.retry.attempts import Answer, RetryRefusal, Terms, answer
from recovery.retry.catalogue import known_to_caller
from recovery.retry.codes import RETRIES_EXHAUSTED
from recovery.retry.orchestrator import decided

log = logging.getLogger(__name__)


Actors = Mapping[str, Actor[..., Any]]
"""Those whose code is here, by name."""


class FailureJudge:
    """Judges the failures of one attempt. What the records say about retries is read once: a retry in the slot is due
    within milliseconds."""

    def __init__(
        self, resources: Resources, actor: Actor[..., Any], here: Actors, decision: Decision, host: Host
    ) -> None:
        """`here` are the actors whose code is here, by name."""
        self._resources, self._actor, self._here, self._host = resources, actor, here, host
        self._claimed = decision
        self._of_task: tuple[RetryOptions, dict[str, Any]] | None = None
        self._of_type: RetryOptions | None = None
        self._asked: tuple[datetime, float] | None = None
        """The database's time when it was asked, and `time.monotonic` then."""

    def judge(self, decision: Decision, ran: CallResult) -> tuple[CallResult, Answer]:
        """Return whether and when a failed attempt is retried, and the attempt with what its caller knows of its error.

        Errors of servers are raised. `decision` is as it was claimed, with the retries since then.
        """
        return through_outage(
            self._resources,
            lambda: self._judge(decision, ran),
            self._actor.preferences.worker_timeout,
            decision.id,
        )

    def _judge(self, decision: Decision, ran: CallResult) -> tuple[CallResult, Answer]:
        error, found, actor = ran.outcome.error, ran.found, self._actor
        assert error is not None and found is not None
        preferences, now = actor.preferences, self._now()
        if self._of_task is None:
            self._of_task = _of_task(self._resources, decision)
            self._log_unknown_strategy(self._of_task[0])
        (task, context), own = self._of_task, preferences.retry_options()
        if is_named(task.retryable, ran.types, found.code):
            found = known_to_caller(found)
            ran = replace(ran, found=found)
        terms = Terms(
            preferences.idempotent, (task, own), actor.strategy_for(task), context, _remaining(actor, decision, now)
        )
        if found.is_retriable:
            self._of_type = self._of_type or _of_process_type(self._resources, self._here, decision)
            terms = replace(terms, options=(task, own, self._of_type))
        # As an actor's function is run, for a strategy is the application's as well: one that hangs takes its slot.
        with self._host.running(decision, preferences.worker_timeout):
            try:
                return ran, decided(answer(decision, error, found, terms, now))
            except (SystemExit, KeyboardInterrupt) as end:
                if self._host.ends(end):
                    raise
                told = f"the strategy {type(terms.strategy).__name__} raised {type(end).__name__}"
                return ran, Answer(refusal=RetryRefusal.STRATEGY, why=told)

    def _now(self) -> datetime:
        if self._asked is None:
            self._asked = self._resources.store.now(), time.monotonic()
        at, asked = self._asked
        return at + timedelta(seconds=time.monotonic() - asked)

    def _log_unknown_strategy(self, task: RetryOptions) -> None:
        if task.strategy is not None and self._actor.strategies.find(task.strategy) is None:
            log.warning(
                "%s %s: this application has no strategy named %s, which the task asks for; its actor's decides",
                self._actor.name, self._claimed.id, task.strategy,
            )  # fmt: skip


def retry_or_end(
    resources: Resources, actor: Actor[..., Any], decision: Decision, ran: CallResult, said: Answer
) -> tuple[CallResult | None, bool | None]:
    """Have what failed tried again, or give back what is to be written as the end of its task, with why it is not tried
    again. Second: whether the retry was written, or is stale; None where there is none. Errors of servers are
    raised."""
    error, found = ran.outcome.error, ran.found
    assert error is not None and found is not None
    if said.state is None:
        assert said.refusal is not None
        labels = actor.name, found.reason.name, str(found.code.number)
        metrics.RETRIES_REFUSED.labels(*labels, said.refusal.value).inc()
        told = "%s %s attempt %d: %s: %s; code %s, reason %s; not tried again: %s\n%s"
        log.warning(
            told, actor.name, decision.id, decision.attempts, error.kind, error.message, found.code.number,
            found.reason.name, said.why, error.stack, extra=_extra(actor, decision, ran, said) | LINES,
        )  # fmt: skip
        ended = error.evolve(no_retry=said.why)
        if said.refusal is RetryRefusal.EXHAUSTED:
            ended = ended.evolve(code=RETRIES_EXHAUSTED.number, exhausted=error.code)
        return replace(ran, outcome=ran.outcome.evolve(error=ended)), None
    state = said.state
    written = through_outage(
        resources,
        lambda: resources.store.decisions.retry_later(decision, state, said.delay, actor.preferences.task_limit),
        actor.preferences.worker_timeout,
        decision.id,
    )
    if written:
        note_retry(actor, decision, ran, said, logging.WARNING)
    return None, written


def note_retry(actor: Actor[..., Any], decision: Decision, ran: CallResult, said: Answer, level: int) -> None:
    """Count and log a retry."""
    error, found, state = ran.outcome.error, ran.found, said.state
    assert error is not None and found is not None and state is not None
    metrics.RETRIES.labels(actor.name, found.reason.name, str(found.code.number)).inc()
    told = "%s %s attempt %d: %s: %s; code %s, reason %s; retry %d in %.3f s, no later than %s"
    log.log(
        level, told, actor.name, decision.id, decision.attempts, error.kind, error.message, found.code.number,
        found.reason.name, state.count, said.delay, f"{state.until:%Y-%m-%d %H:%M:%S} UTC",
        extra=_extra(actor, decision, ran, said),
    )  # fmt: skip


def _of_task(resources: Resources, decision: Decision) -> tuple[RetryOptions, dict[str, Any]]:
    """What a task says itself, and its context. What can't be read of it says nothing: the fault may pass all the
    same."""
    options, text = None, None
    try:
        options, text = resources.store.tasks.retry_terms(decision.id)
        context = {} if text is None else json.loads(text)
        if not isinstance(context, dict):
            raise DamagedRecord(decision.id, f"Task {decision.id}: its context is no object", ("context",), "Task")
    except (DamagedRecord, ValueError, RecursionError) as damage:
        tell(decision.id, damage)
        context = {}
    return options or RetryOptions(), context


def _of_process_type(resources: Resources, here: Actors, decision: Decision) -> RetryOptions:
    try:
        process = resources.store.processes.brief(decision.process_id)
    except DamagedRecord as damage:
        tell(decision.id, damage)
        process = None
    if process is None:
        return RetryOptions()
    preferences, code = resources.store.preferences, here.get(process.type)
    if code is None or code.process_type is None:
        return preferences.process_type_named(process.type).retry_options()
    return preferences.process_type(code.process_type).retry_options()


def _remaining(actor: Actor[..., Any], decision: Decision, now: datetime) -> float | None:
    """Seconds until the task's time as a whole is over."""
    limit = actor.preferences.task_limit
    if limit is None:
        return None
    began = decision.enqueued_at or now  # one that was claimed on the spot is as old as its attempt
    return limit.seconds - (now - began).total_seconds()


def _extra(actor: Actor[..., Any], decision: Decision, ran: CallResult, said: Answer) -> dict[str, Any]:
    """The same as fields of the log's record, for whoever collects logs."""
    error = ran.outcome.error
    assert error is not None
    state = said.state
    return {
        # As `LogContext` names them.
        "recovery_actor": actor.name,
        "recovery_process": decision.process_id,
        "recovery_task": decision.task_id,
        "recovery_attempt": decision.attempts,
        "error_kind": error.kind,
        "error_code": error.code,
        "retry_reason": error.reason,
        "retry_count": state.count if state is not None else None,
        "retry_delay": said.delay if state is not None else None,
        "retry_until": state.until if state is not None else None,
        "no_retry": said.why or None,
    }
