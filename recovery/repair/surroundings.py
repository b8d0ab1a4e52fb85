"""What rules know beside the records, read from the servers."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable
from datetime import timedelta

from recovery.engine import Resources
from recovery.errors import BrokerError
from recovery.rules import Surroundings


def look_around(
    resources: Resources, *, queues: Iterable[str] = (), lost_workers: Iterable[str] = (), looks_again: bool = False
) -> Surroundings:
    """The time, all settings, and what is known of these queues. A scanner `looks_again` (see `Surroundings`)."""
    settings, store = resources.settings, resources.store
    names = sorted(set(queues))
    depths: dict[str, int] = {}
    # In this order: a queue that is empty was so after this time; and where a scanner pushes in between, it has told
    # in the statistics that it saw the queue empty. Without Redis nothing is concluded from depths.
    began, now = time.monotonic(), store.now()
    if names:
        try:
            depths = resources.broker.depths(names)
        except BrokerError:
            depths = {}
    if looks_again and time.monotonic() - began > settings.claim_margin / 2:
        depths = {}  # what a queue lacks now was taken after `now`, perhaps: to be seen at the next look
    actors = store.actors.stored()
    return Surroundings(
        now=now,
        actors={name: stored.effective for name, stored in actors.items()},
        blocked=frozenset(name for name, stored in actors.items() if stored.blocked),
        process_types=store.process_types.all(),
        queues=store.queues.all() if names else {},
        depths=depths,
        lost_workers=frozenset(lost_workers),
        polled_within=timedelta(seconds=settings.polled_within),
        message_margin=timedelta(seconds=settings.message_margin),
        claim_margin=timedelta(seconds=settings.claim_margin),
        looks_again=looks_again,
        margin=timedelta(seconds=settings.apply_timeout),
    )


def keep_empty(resources: Resources, around: Surroundings, queues: Container[str] | None = None) -> None:
    """Write down which queues are empty, before anything is pushed that fills them; of these only, if any are named."""
    if empty := [queue for queue in around.seen_empty() if queues is None or queue in queues]:
        resources.store.queues.seen_empty(empty, around.now, around.claim_margin)


def look_at_all(resources: Resources) -> Surroundings:
    """The same of all queues that any worker polled or serves."""
    known = {*resources.store.actors.all(), *resources.store.queues.all()}
    return look_around(resources, queues=known)
