"""The check of the way between workers and Redis: is each worker answered?

A worker may live by its heartbeats in MongoDB and hear nothing from Redis, behind a firewall that drops, while Redis
answers whoever asks here. It begins no task then, and takes no nudge. Its own record says which of its polls were
answered, so one that hears nothing is found whatever others hear.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.durations import show_age
from recovery.engine import Resources
from recovery.health.model import Cause, Check, join_names, ok, problem
from recovery.plurals import count
from recovery.records import QueueStatistics, Worker

MISSED = 1.8
"""Heartbeats that a worker wrote without an answered poll: one while its slots fill up is normal."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How old the last answered poll of a queue may be."""

    timeout: timedelta
    """A worker's heartbeat timeout, by which its deadline tells when it beat."""
    missed: timedelta
    """At its last heartbeat, by its own record."""
    within: timedelta
    """Now, by anybody's word; and a worker has so long for its first one."""


def polls(resources: Resources) -> Check:
    """Redis answers the polls of each worker."""
    store, settings = resources.store, resources.settings
    bounds = Bounds(
        timedelta(seconds=settings.heartbeat_timeout),
        timedelta(seconds=max(MISSED * settings.heartbeat_interval, 1.0)),
        timedelta(seconds=settings.polled_within),
    )
    return judge_polls(store.overview.workers_alive(), store.queues.all(), store.now(), bounds)


def judge_polls(alive: Iterable[Worker], polled: Mapping[str, QueueStatistics], now: datetime, bounds: Bounds) -> Check:
    """What the last answers mean; `polled` is of whom a worker's record does not tell."""
    older = [one for one in alive if one.started_at is not None and one.started_at < now - bounds.within]
    silent, consumed = [], set[str]()
    for worker in older:
        queues = set(worker.queues).difference(worker.paused)
        consumed |= queues
        unanswered = _unanswered(worker, queues, polled, now, bounds)
        if unanswered:
            silent.append(f"{worker.name} ({_described(unanswered, queues, now)})")
    if not silent:
        return ok("polls", f"{count(len(consumed), 'queue')} polled by {count(len(older), 'worker')}")
    advice = (
        "see whether they reach Redis (address, firewall); their logs tell. Until they do they begin no task and take "
        "no nudge"
    )
    found = f"alive, and Redis does not answer their polls: {join_names(silent)}"
    return problem("polls", Cause.POLLS_UNANSWERED, found, advice)


def _unanswered(
    worker: Worker, queues: Iterable[str], polled: Mapping[str, QueueStatistics], now: datetime, bounds: Bounds
) -> dict[str, datetime | None]:
    """{queue: when its poll was last answered} of those that are silent."""
    told = {one.id: one.polled_at for one in worker.polls}
    # Of a worker that tells of none, what is known of the queue: some versions told it there alone.
    moments = {queue: told.get(queue) if told else _last(polled, queue) for queue in queues}
    beat_at = min(now, worker.recovery_time - bounds.timeout) if worker.recovery_time is not None else now
    since = beat_at - bounds.missed if told else now - bounds.within
    unanswered = {queue: moment for queue, moment in moments.items() if moment is None or moment < since}
    # One that is answered hears Redis: what it does not poll was blocked until just now.
    return {} if told and len(unanswered) < len(moments) else unanswered


def _last(polled: Mapping[str, QueueStatistics], queue: str) -> datetime | None:
    return polled[queue].polled_at if queue in polled else None


def _described(unanswered: Mapping[str, datetime | None], queues: set[str], now: datetime) -> str:
    moments = [moment for moment in unanswered.values() if moment is not None]
    since = f"for {show_age((now - max(moments)).total_seconds())}" if moments else "never"
    return f"{'any queue' if len(unanswered) == len(queues) else join_names(unanswered, 3)}, {since}"
