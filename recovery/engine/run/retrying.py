"""Handles a failed attempt: it is retried in its slot, retried later, or ends its task.

    working → delayed, with the state of its retries and the time of the next retry; the Decision scanner queues it
        (DUE)

If the delay is shorter than the scan interval, the attempt waits in the slot (`in_place`). A longer delay occupies no
worker: the write that ends the attempt also stores the number of retries in the decision. If a worker is cut off before
that write, the attempt counts as lost.

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
"""Actors whose code this worker has, by name."""


class FailureJudge:
    """Decides whether and when the failures of one attempt are retried.

    Retry options in the records are read once per attempt, because a retry in the slot may be due within milliseconds.
    """

    def __init__(
        self, resources: Resources, actor: Actor[..., Any], here: Actors, decision: Decision, host: Host
    ) -> None:
        """Create the judge of one attempt.

        Args:
            resources: Connections.
            actor: The actor of the task.
            here: Actors whose code this worker has, by name.
            decision: The decision as it was claimed.
            host: The pool process.
        """
        self._resources, self._actor, self._here, self._host = resources, actor, here, host
        self._claimed = decision
        self._of_task: tuple[RetryOptions, dict[str, Any]] | None = None
        self._of_type: RetryOptions | None = None
        self._asked: tuple[datetime, float] | None = None
        """The database's time when it was read, and `time.monotonic` at that moment."""

    def judge(self, decision: Decision, ran: CallResult) -> tuple[CallResult, Answer]:
        """Return whether and when a failed attempt is retried, and the attempt with its error as its caller classifies
        it.

        `decision` is the decision as it was claimed, with the retries since then. Errors of servers are raised.
        """
        return through_outage(
            self._resources,
            lambda: self._judge(decision, ran),
            self._actor.preferences.worker_timeout,
            decision.id,
        )

    def _judge(self, decision: Decision, ran: CallResult) -> tuple[CallResult, Answer]:
        error, classified, actor = ran.outcome.error, ran.found, self._actor
        assert error is not None and classified is not None
        preferences, now = actor.preferences, self._now()
        if self._of_task is None:
            self._of_task = _of_task(self._resources, decision)
            self._log_unknown_strategy(self._of_task[0])
        (task, context), actor_options = self._of_task, preferences.retry_options()
        if is_named(task.retryable, ran.types, classified.code):
            classified = known_to_caller(classified)
            ran = replace(ran, found=classified)
        terms = Terms(
            preferences.idempotent,
            (task, actor_options),
            actor.strategy_for(task),
            context,
            _remaining(actor, decision, now),
        )
        if classified.is_retriable:
            self._of_type = self._of_type or _of_process_type(self._resources, self._here, decision)
            terms = replace(terms, options=(task, actor_options, self._of_type))
        # Run like an actor's function, because a strategy is application code too: if it hangs, it blocks its slot.
        with self._host.running(decision, preferences.worker_timeout):
            try:
                return ran, decided(answer(decision, error, classified, terms, now))
            except (SystemExit, KeyboardInterrupt) as end:
                if self._host.ends(end):
                    raise
                why = f"the strategy {type(terms.strategy).__name__} raised {type(end).__name__}"
                return ran, Answer(refusal=RetryRefusal.STRATEGY, why=why)

    def _now(self) -> datetime:
        if self._asked is None:
            self._asked = self._resources.store.now(), time.monotonic()
        server_time, read_at = self._asked
        return server_time + timedelta(seconds=time.monotonic() - read_at)

    def _log_unknown_strategy(self, task: RetryOptions) -> None:
        if task.strategy is not None and self._actor.strategies.find(task.strategy) is None:
            log.warning(
                "%s %s: this application has no strategy named %s, which the task asks for; its actor's is used",
                self._actor.name, self._claimed.id, task.strategy,
            )  # fmt: skip


def retry_or_end(
    resources: Resources, actor: Actor[..., Any], decision: Decision, ran: CallResult, said: Answer
) -> tuple[CallResult | None, bool | None]:
    """Schedule a retry of a failed attempt, or return the attempt with which its task ends.

    Errors of servers are raised.

    Args:
        resources: Connections.
        actor: The actor of the task.
        decision: The claimed decision.
        ran: The failed attempt.
        said: Whether and when the attempt is retried.

    Returns:
        First, the attempt to write as the end of the task, with the reason why it is not retried; None if it is
        retried. Second, whether the retry was written (False: the attempt is stale); None if no retry was due.
    """
    error, classified = ran.outcome.error, ran.found
    assert error is not None and classified is not None
    if said.state is None:
        assert said.refusal is not None
        labels = actor.name, classified.reason.name, str(classified.code.number)
        metrics.RETRIES_REFUSED.labels(*labels, said.refusal.value).inc()
        message = "%s %s attempt %d: %s: %s; code %s, reason %s; not tried again: %s\n%s"
        log.warning(
            message, actor.name, decision.id, decision.attempts, error.kind, error.message, classified.code.number,
            classified.reason.name, said.why, error.stack, extra=_extra(actor, decision, ran, said) | LINES,
        )  # fmt: skip
        final_error = error.evolve(no_retry=said.why)
        if said.refusal is RetryRefusal.EXHAUSTED:
            final_error = final_error.evolve(code=RETRIES_EXHAUSTED.number, exhausted=error.code)
        return replace(ran, outcome=ran.outcome.evolve(error=final_error)), None
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
    """Count a retry, and log it at this level."""
    error, classified, state = ran.outcome.error, ran.found, said.state
    assert error is not None and classified is not None and state is not None
    metrics.RETRIES.labels(actor.name, classified.reason.name, str(classified.code.number)).inc()
    message = "%s %s attempt %d: %s: %s; code %s, reason %s; retry %d in %.3f s, no later than %s"
    log.log(
        level, message, actor.name, decision.id, decision.attempts, error.kind, error.message, classified.code.number,
        classified.reason.name, state.count, said.delay, f"{state.until:%Y-%m-%d %H:%M:%S} UTC",
        extra=_extra(actor, decision, ran, said),
    )  # fmt: skip


def _of_task(resources: Resources, decision: Decision) -> tuple[RetryOptions, dict[str, Any]]:
    """Return the retry options that the task itself has, and its context.

    If they can't be read, this is logged, and defaults are returned: the attempt may succeed all the same.
    """
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


def _of_process_type(resources: Resources, actors: Actors, decision: Decision) -> RetryOptions:
    """Return the retry options of the process type, with defaults if the process is gone or can't be read."""
    try:
        process = resources.store.processes.brief(decision.process_id)
    except DamagedRecord as damage:
        tell(decision.id, damage)
        process = None
    if process is None:
        return RetryOptions()
    preferences, actor = resources.store.preferences, actors.get(process.type)
    if actor is None or actor.process_type is None:
        return preferences.process_type_named(process.type).retry_options()
    return preferences.process_type(actor.process_type).retry_options()


def _remaining(actor: Actor[..., Any], decision: Decision, now: datetime) -> float | None:
    """Return the seconds that remain of the task's total time, or None if it has no limit."""
    limit = actor.preferences.task_limit
    if limit is None:
        return None
    started = decision.enqueued_at or now  # a task that was claimed without being queued has its whole limit
    return limit.seconds - (now - started).total_seconds()


def _extra(actor: Actor[..., Any], decision: Decision, ran: CallResult, verdict: Answer) -> dict[str, Any]:
    """Return the same values as fields of the log record, for log collectors."""
    error = ran.outcome.error
    assert error is not None
    state = verdict.state
    return {
        # The same names as in `LogContext`.
        "recovery_actor": actor.name,
        "recovery_process": decision.process_id,
        "recovery_task": decision.task_id,
        "recovery_attempt": decision.attempts,
        "error_kind": error.kind,
        "error_code": error.code,
        "retry_reason": error.reason,
        "retry_count": state.count if state is not None else None,
        "retry_delay": verdict.delay if state is not None else None,
        "retry_until": state.until if state is not None else None,
        "no_retry": verdict.why or None,
    }
