"""A task that is pinned to another version of the application than this worker's: it waits for an able worker.

    working → delayed, with who refused it; the Decision scanner queues it (DUE)

Guarantees:
    - The function is not called, and neither an attempt nor a retry is counted.
    - The task never ends for this: without a worker that may run it, it waits, and `recovery doctor` reports it.
"""

from __future__ import annotations

import logging

from recovery.engine.actors.actor import Actor
from recovery.engine.lifecycle.refusing import add_refusal, delay_after, give_back
from recovery.engine.outages import through_outage
from recovery.engine.resources import Resources
from recovery.records import PINNED, Decision

log = logging.getLogger(__name__)

SOON = 0.5
"""Seconds after which the task is queued again while a worker lives that may run it. Which worker takes a message is
left to chance, so the delay does not grow: with one able worker in ten it would grow to half a minute for each task."""


def give_back_pinned(resources: Resources, actor: Actor[..., object], decision: Decision, pinned_to: str) -> bool:
    """Give back a claimed task that this worker may not run.

    Returns:
        False if this attempt no longer holds the claim.

    Raises:
        StoreError: MongoDB was away for longer than the task's `worker_timeout`.
    """
    store, timeout, version = resources.store, actor.preferences.worker_timeout, resources.version()
    now = through_outage(resources, store.now, timeout, decision.id)
    serving = store.workers.versions_serving
    able = through_outage(resources, lambda: serving(actor.name, pinned_to), timeout, decision.id)
    refused = add_refusal(decision, version, PINNED, now)
    delay = SOON if able else delay_after(refused.count)
    written = give_back(resources, actor, decision, refused, delay)
    if written and not able:
        # Once for each version: a task that waits for hours is refused again and again.
        level = logging.WARNING if refused.by[-1].since == now else logging.DEBUG
        log.log(
            level, "%s %s is pinned to version %s, and no live worker runs that; queued again in %g s",
            actor.name, decision.id, pinned_to, delay,
        )  # fmt: skip
    return written
