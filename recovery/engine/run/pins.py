"""A task that is pinned to another version of the application than this worker's: it waits for an able worker.

    working → delayed, with who refused it; then → queued at once, or by the Decision scanner (DUE)

Guarantees:
    - The function is not called, and neither an attempt nor a retry is counted.
    - While an able worker lives, the task is queued again at once, as often in a row as workers serve its actor, and
      then after a short delay. Redis gives a message to the idle worker that has waited longest, and the worker that
      has just given one back has waited shortest: so an idle able worker gets it. After a delay it could be the same
      unable worker again and again.
    - The task never ends for this: without an able worker it waits, and `recovery doctor` reports it.
"""

from __future__ import annotations

import logging

from recovery.engine.actors.actor import Actor
from recovery.engine.outages import through_outage
from recovery.engine.resources import Resources
from recovery.engine.run.refusing import MAX_DELAY, add_refusal, delay_after, give_back
from recovery.engine.steps import push
from recovery.records import PINNED, Decision
from recovery.records.ids import new_pass

log = logging.getLogger(__name__)


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
    is one of those that serve its actor: none, until all of them could have had it; then 0.5, 1, 2 … up to MAX_DELAY.

    The able workers are busy then. It grows that far because thousands of such tasks may wait, and each try costs."""
    rounds, since = divmod(refusals, workers + 1)
    return 0.0 if since else min(MAX_DELAY, 2.0 ** min(rounds - 2, 10))
