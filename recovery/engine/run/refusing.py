"""A task whose call the code of this worker does not accept: it waits for a worker of another version.

    working → delayed, with who refused it and why; the Decision scanner queues it (DUE)

Guarantees:
    - The function is not called, and neither an attempt nor a retry is counted.
    - The delay grows: 1, 2, 4 … up to 30 s, within which a new worker has it.
    - The task ends with an error only if every version among the live workers that serve its actor has refused it for
      `version_grace`. That time begins anew each time it is over and a version lives that has not refused it.

Metrics: recovery_calls_refused.

A task that is pinned to another version of the application waits in the same way, but without end (`recovery doctor`
reports it), and at first without a delay: while an able worker lives, it is queued again at once, as often in a row as
workers serve its actor. Redis gives a message to the idle worker that has waited longest, and the worker that has just
given one back has waited shortest: so an idle able worker gets it. After a delay it could be the same unable worker
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
"""Versions whose refusals of a task are kept, at most: the latest ones."""
NO_RETRY = "no live worker has code that accepts it"


def give_back_or_end(
    resources: Resources, actor: Actor[..., object], decision: Decision, refusal: CallRefused
) -> tuple[Outcome | None, bool]:
    """Give back a claimed task that this worker's code does not accept, or return what it ends with.

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
    if is_refused_by_all(refused, live, now - grace):  # else nobody else's refusal matters yet
        serving = store.workers.versions_serving
        live |= through_outage(resources, lambda: serving(actor.name, decision.pinned_to), timeout, decision.id)
        if is_refused_by_all(refused, live, now - grace):
            return _error(actor.name, decision, refused, live, resources.settings.version_grace), False
        if not live <= {one.version for one in refused.by}:
            refused = begun_anew(refused, now)
    delay = delay_after(refused.count)
    written = give_back(resources, actor, decision, refused, delay)
    if written:
        # Once for each version: a task that waits for hours is refused every 30 s.
        level = logging.WARNING if refused.by[-1].since == now else logging.DEBUG
        log.log(
            level, "%s %s waits for a newer worker: %s %s (version %s of the application); queued again in %g s",
            actor.name, decision.id, actor.name, refusal, version, delay,
        )  # fmt: skip
    return None, written


def give_back(
    resources: Resources, actor: Actor[..., object], decision: Decision, refused: Refused, delay: float
) -> bool:
    """Give back a claimed task that this worker refuses, to be queued again after so many seconds.

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
    """Return the refusals of a claimed task with one more. An attempt that began has removed those before it."""
    attempts = max(0, decision.attempts - 1)
    before = decision.refused or Refused(count=0, attempts=attempts, pass_key="", by=())
    since = next((one.since for one in before.by if one.version == version), now)
    others = [one for one in before.by if one.version != version]
    last = VersionRefusal(version=version, since=min(since, now), why=why)
    by = (*others[1 - MAX_VERSIONS :], last)
    return Refused(count=before.count + 1, attempts=attempts, pass_key=pass_of(decision), by=by)


def is_refused_by_all(refused: Refused, versions: frozenset[str | None], since: datetime) -> bool:
    """Return whether each of these versions has refused a task since this moment, or longer."""
    return versions <= {one.version for one in refused.by if one.since <= since}


def begun_anew(refused: Refused, now: datetime) -> Refused:
    """Return refusals that count from now on: a version lives that has not refused the task. If its workers are away
    for a moment later, the task does not fail for what was refused while they lived."""
    return refused.evolve(by=tuple(one.evolve(since=now) for one in refused.by))


def delay_after(refusals: int) -> float:
    """Seconds after which a task is queued again that was refused this many times in a row."""
    return REFUSED_CALL.delay(refusals)


def _later(retry: RetryState | None, delay: float) -> RetryState | None:
    """The retries of a task, as if all of them had been later: their total duration does not count the delay."""
    if retry is None:
        return None
    by = timedelta(seconds=delay)
    cycles = tuple(cycle.evolve(since=cycle.since + by) for cycle in retry.cycles)
    return retry.evolve(since=retry.since + by, until=retry.until + by, cycles=cycles)


def _error(actor: str, decision: Decision, refused: Refused, live: frozenset[str | None], grace: float) -> Outcome:
    reasons = "; ".join(f"{one.version}: {one.why}" for one in refused.by if one.version in live)
    error = CallRefused(
        f"no live worker accepts this call of {actor}: every version of the application has refused it for at least "
        f"{show_duration(grace)} ({reasons}). Start workers whose code accepts it, then restart the task"
    )
    outcome = of_error(error, decision, Classified(CALL_REFUSED, UNKNOWN))
    assert outcome.error is not None
    return outcome.evolve(error=outcome.error.evolve(no_retry=NO_RETRY))


def give_back_pinned(resources: Resources, actor: Actor[..., object], decision: Decision, pinned_to: str) -> bool:
    """Give back a claimed task that this worker may not run.

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
        # Cut off before this, the Decision scanner does it.
        push(resources, store.requeues.enqueue_due([decision.id], new_pass()))
    if written and not able:
        # Once for each version: a task that waits for hours is refused again and again.
        level = logging.WARNING if refused.by[-1].since == now else logging.DEBUG
        log.log(
            level, "%s %s is pinned to version %s, and no live worker runs that; queued again in %g s",
            actor.name, decision.id, pinned_to, delay,
        )  # fmt: skip
    return written


def delay_between(refusals: int, workers: int) -> float:
    """Seconds after which a pinned task is queued again that was refused this many times in a row, while an able worker
    is one of those that serve its actor: none, until all of them could have had it; then 0.5, 1, 2 … up to 30.

    The able workers are busy then. It grows that far because thousands of such tasks may wait, and each try costs."""
    rounds, since = divmod(refusals, workers + 1)
    return 0.0 if since else PINNED_CALL.delay(rounds)
