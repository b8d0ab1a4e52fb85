"""The check of the way between workers and Redis: is each worker answered?

A worker may live by its heartbeats in MongoDB and hear nothing from Redis, behind a firewall that drops, while Redis
answers whoever asks here. It begins no task then, and takes no nudge. Its own record says which of its polls were
answered, so one that hears nothing is found whatever others hear.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.engine import Resources
from recovery.health.model import Cause, Check, join_names, ok, problem, unasked
from recovery.records import Worker
from recovery.wording import count, show_age

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
    """A worker has so long for its first one."""


def polls(resources: Resources) -> Check:
    """Redis answers the polls of each worker."""
    store, settings = resources.store, resources.settings
    bounds = Bounds(
        timedelta(seconds=settings.heartbeat_timeout),
        timedelta(seconds=max(MISSED * settings.heartbeat_interval, 1.0)),
        timedelta(seconds=settings.polled_within),
    )
    return judge_polls(store.overview.workers_alive(), store.now(), bounds)


def judge_polls(alive: Sequence[Worker], now: datetime, bounds: Bounds) -> Check:
    """What the last answers mean."""
    if not alive:
        return unasked("polls", "no worker is alive", "see `workers`")
    older = [one for one in alive if one.started_at is not None and one.started_at < now - bounds.within]
    silent, consumed = [], set[str]()
    for worker in older:
        queues = set(worker.queues).difference(worker.paused)
        consumed |= queues
        unanswered = _unanswered(worker, queues, now, bounds)
        if unanswered:
            silent.append(f"{worker.name} ({_described(unanswered, now)})")
    if not silent:
        return ok("polls", f"{count(len(consumed), 'queue')} polled by {count(len(older), 'worker')}")
    advice = (
        "see whether they reach Redis (address, firewall); their logs tell. Until they do they begin no task and take "
        "no nudge"
    )
    found = f"alive, and Redis does not answer their polls: {join_names(silent)}"
    return problem("polls", Cause.POLLS_UNANSWERED, found, advice)


def _unanswered(worker: Worker, queues: Iterable[str], now: datetime, bounds: Bounds) -> dict[str, datetime | None]:
    """{queue: when its poll was last answered} of those that are silent: all, or none."""
    told = {one.id: one.polled_at for one in worker.polls}
    # What is still to come is nobody's answer.
    moments = {
        queue: moment if (moment := told.get(queue)) and moment < now + bounds.within else None for queue in queues
    }
    beat_at = min(now, worker.recovery_time - bounds.timeout) if worker.recovery_time is not None else now
    since = beat_at - bounds.missed
    unanswered = {queue: moment for queue, moment in moments.items() if moment is None or moment < since}
    # One that is answered hears Redis: what it does not poll was blocked until just now.
    return {} if len(unanswered) < len(moments) else unanswered


def _described(unanswered: Mapping[str, datetime | None], now: datetime) -> str:
    moments = [moment for moment in unanswered.values() if moment is not None]
    return f"for {show_age((now - max(moments)).total_seconds())}" if moments else "never"
