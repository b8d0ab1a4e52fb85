"""The check of the way between workers and Redis: are the polls of those that live answered?

A worker may live by its heartbeats in MongoDB and hear nothing from Redis, behind a firewall that drops, while Redis
answers whoever asks here. No task begins then, and no nudge comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from recovery.durations import show_age
from recovery.engine import Resources
from recovery.health.model import Check, join_names, ok, problem
from recovery.plurals import count
from recovery.records import QueueStatistics, Worker


def polls(resources: Resources) -> Check:
    """Redis answers the polls of all queues that workers consume."""
    store, settings = resources.store, resources.settings
    alive, polled = store.overview.workers_alive(), store.queues.all()
    within = timedelta(seconds=settings.polled_within)
    return judge_polls(alive, polled, store.now(), within)


def judge_polls(
    alive: Iterable[Worker], polled: Mapping[str, QueueStatistics], now: datetime, within: timedelta
) -> Check:
    """What the last answers mean; a worker has `within` for its first one."""
    older = [one for one in alive if one.started_at is not None and one.started_at < now - within]
    consumed = {queue for worker in older for queue in worker.queues if queue not in worker.paused}
    last = {queue: polled[queue].polled_at if queue in polled else None for queue in consumed}
    silent = [queue for queue, moment in last.items() if moment is None or moment < now - within]
    if not silent:
        return ok("polls", f"{count(len(consumed), 'queue')} polled")
    names = [f"{queue} ({_ago(last[queue], now)})" for queue in silent]
    advice = (
        "see whether workers reach Redis (address, firewall); their logs tell. Until they do they begin no task and "
        "get no nudge"
    )
    return problem("polls", f"workers are alive, but Redis does not answer their polls of {join_names(names)}", advice)


def _ago(moment: datetime | None, now: datetime) -> str:
    return "never" if moment is None else f"{show_age((now - moment).total_seconds())} ago"
