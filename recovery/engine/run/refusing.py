"""Handles a task whose call this worker's code does not accept: the task waits for a worker of another version.

    working → delayed, with the refusing version and the reason; the Decision scanner queues it (DUE)

Guarantees:
    - The function is not called, and neither an attempt nor a retry is counted.
    - The delay grows from 1 s over 2 s and 4 s to at most 30 s. A new worker gets the task within this delay.
    - The task ends with an error only if every version among the live workers that serve its actor has refused it for
      `version_grace`. This period starts again if it is over and a live version has not refused the task.

Metrics: recovery_calls_refused.

A task that is pinned to another version of the application waits in the same way, but without an end (`recovery doctor`
reports it). While an able worker lives, it is first requeued without a delay, as many times in a row as workers serve
its actor. Redis delivers a message to the worker that has been idle longest, and the worker that has just given a task
back has been idle shortest, so an idle able worker gets the task. After a delay, the same unable worker could get it
again and again.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from recovery import metrics
from recovery.engine.actors.actor import Actor
from recovery.engine.actors.call import of_error, pass_of
from recovery.engine.actors.resolve import CallRefused
from recovery.engine.outages import through_outage
from recovery.engine.resources import Resources
from recovery.engine.steps import push
from recovery.records import PINNED, Decision, Outcome, Refused, RetryState, VersionRefusal
from recovery.records.ids import new_pass
from recovery.retry import Classified
from recovery.retry.codes import CALL_REFUSED
from recovery.retry.own_work import PINNED_CALL, REFUSED_CALL
from recovery.retry.reasons import UNKNOWN
from recovery.wording import show_duration

log = logging.getLogger(__name__)

MAX_VERSIONS = 16
"""Maximum number of versions whose refusals of a task are kept: the latest ones."""
NO_RETRY = "no live worker has code that accepts it"


def give_back_or_end(
    resources: Resources, actor: Actor[..., object], decision: Decision, refusal: CallRefused
) -> tuple[Outcome | None, bool]:
    """Give back a claimed task that this worker's code does not accept, or return the error that ends it.

    Returns:
        The error to end the task with, or None; then whether the task was given back. If neither, this attempt no
        longer holds the claim.

    Raises:
        StoreError: MongoDB was away for longer than the task's `worker_timeout`.
    """
    store, timeout, version = resources.store, actor.preferences.worker_timeout, resources.version()
    metrics.CALLS_REFUSED.labels(actor.name).inc()
    now = through_outage(resources, store.now, timeout, decision.id)
    refused = add_refusal(decision, version, str(refusal), now)
    grace = timedelta(seconds=resources.settings.version_grace)
    live: frozenset[str | None] = frozenset({version})
    if is_refused_by_all(refused, live, now - grace):  # otherwise other versions need not be checked yet
        serving = store.workers.versions_serving
        live |= through_outage(resources, lambda: serving(actor.name, decision.pinned_to), timeout, decision.id)
        if is_refused_by_all(refused, live, now - grace):
            return _error(actor.name, decision, refused, live, resources.settings.version_grace), False
        if not live <= {kept.version for kept in refused.by}:
            refused = begun_anew(refused, now)
    delay = delay_after(refused.count)
    written = give_back(resources, actor, decision, refused, delay)
    if written:
        # A warning once per version: a task that waits for hours is refused every 30 s.
        level = logging.WARNING if refused.by[-1].since == now else logging.DEBUG
        log.log(
            level, "%s %s waits for a newer worker: %s %s (version %s of the application); queued again in %g s",
            actor.name, decision.id, actor.name, refusal, version, delay,
        )  # fmt: skip
    return None, written


def give_back(
    resources: Resources, actor: Actor[..., object], decision: Decision, refused: Refused, delay: float
) -> bool:
    """Give back a claimed task that this worker refuses, to be requeued after `delay` seconds.

    Returns:
        False if this attempt no longer holds the claim.

    Raises:
        StoreError: MongoDB was away for longer than the task's `worker_timeout`.
    """
    retry, limit = _later(decision.retry, delay), actor.preferences.task_limit
    return through_outage(
        resources,
        lambda: resources.store.decisions.give_back_refused(decision, refused, retry, delay, limit),
        actor.preferences.worker_timeout,
        decision.id,
    )


def add_refusal(decision: Decision, version: str, why: str, now: datetime) -> Refused:
    """Return the refusals of a claimed task with one more. Refusals from before the last attempt began are already
    gone."""
    attempts = max(0, decision.attempts - 1)
    previous = decision.refused or Refused(count=0, attempts=attempts, pass_key="", by=())
    since = next((refusal.since for refusal in previous.by if refusal.version == version), now)
    others = [refusal for refusal in previous.by if refusal.version != version]
    last = VersionRefusal(version=version, since=min(since, now), why=why)
    versions = (*others[1 - MAX_VERSIONS :], last)
    return Refused(count=previous.count + 1, attempts=attempts, pass_key=pass_of(decision), by=versions)


def is_refused_by_all(refused: Refused, versions: frozenset[str | None], since: datetime) -> bool:
    """Return whether each of these versions has been refusing the task since this moment or earlier."""
    return versions <= {refusal.version for refusal in refused.by if refusal.since <= since}


def begun_anew(refused: Refused, now: datetime) -> Refused:
    """Return the refusals with all periods starting now, because a live version has not refused the task.

    If that version's workers are away for a moment later, the task does not fail for refusals from before.
    """
    return refused.evolve(by=tuple(refusal.evolve(since=now) for refusal in refused.by))


def delay_after(refusals: int) -> float:
    """Return the seconds to wait before requeueing a task that was refused this many times in a row."""
    return REFUSED_CALL.delay(refusals)


def _later(retry: RetryState | None, delay: float) -> RetryState | None:
    """Return the retries with all times shifted by the delay, so that their total duration does not include it."""
    if retry is None:
        return None
    shift = timedelta(seconds=delay)
    cycles = tuple(cycle.evolve(since=cycle.since + shift) for cycle in retry.cycles)
    return retry.evolve(since=retry.since + shift, until=retry.until + shift, cycles=cycles)


def _error(actor: str, decision: Decision, refused: Refused, live: frozenset[str | None], grace: float) -> Outcome:
    reasons = "; ".join(f"{refusal.version}: {refusal.why}" for refusal in refused.by if refusal.version in live)
    error = CallRefused(
        f"no live worker accepts this call of {actor}: every version of the application has refused it for at least "
        f"{show_duration(grace)} ({reasons}). Start workers whose code accepts it, then restart the task"
    )
    outcome = of_error(error, decision, Classified(CALL_REFUSED, UNKNOWN))
    assert outcome.error is not None
    return outcome.evolve(error=outcome.error.evolve(no_retry=NO_RETRY))


def give_back_pinned(resources: Resources, actor: Actor[..., object], decision: Decision, pinned_to: str) -> bool:
    """Give back a claimed task that is pinned to a version which this worker may not run.

    Returns:
        False if this attempt no longer holds the claim.

    Raises:
        StoreError: MongoDB was away for longer than the task's `worker_timeout`.
    """
    store, timeout, version = resources.store, actor.preferences.worker_timeout, resources.version()
    now = through_outage(resources, store.now, timeout, decision.id)
    workers = through_outage(resources, lambda: store.workers.serving(actor.name), timeout, decision.id)
    able = any(worker.may_run(pinned_to) for worker in workers)
    refused = add_refusal(decision, version, PINNED, now)
    delay = delay_between(refused.count, len(workers)) if able else delay_after(refused.count)
    written = give_back(resources, actor, decision, refused, delay)
    if written and not delay:
        # If the worker is cut off before this, the Decision scanner enqueues the task.
        push(resources, store.requeues.enqueue_due([decision.id], new_pass()))
    if written and not able:
        # A warning once per version: a task that waits for hours is refused again and again.
        level = logging.WARNING if refused.by[-1].since == now else logging.DEBUG
        log.log(
            level, "%s %s is pinned to version %s, and no live worker runs that; queued again in %g s",
            actor.name, decision.id, pinned_to, delay,
        )  # fmt: skip
    return written


def delay_between(refusals: int, workers: int) -> float:
    """Return the seconds to wait before requeueing a pinned task while an able worker serves its actor.

    The delay is 0 until all workers could have had the task. Then the able workers must be busy, and the delay is 0.5
    s, 1 s, 2 s and so on up to 30 s. It grows that far because thousands of these tasks may wait, and each try costs.

    Args:
        refusals: How many times in a row the task was refused.
        workers: Number of live workers that serve its actor.
    """
    rounds, refusals_in_round = divmod(refusals, workers + 1)
    return 0.0 if refusals_in_round else PINNED_CALL.delay(rounds)
