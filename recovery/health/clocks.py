"""The check of the clocks: this machine's and each worker's against MongoDB's and Redis's.

All deadlines are set and compared by MongoDB's clock alone, so no difference breaks recovery. What lies is what people
read: process ids sort by the clock of the machine that made them, and logs of two machines are laid side by side.
From APART on their order is wrong by more than a step of a process takes. From FAR_APART on nobody sets this clock:
it is off by a whole first look at a process (`idle_timeout`), and what beats send with an expiry (a sweep) is taken
for expired, or never.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from recovery.engine import Resources
from recovery.health.model import Cause, Check, Level, join_names, ok
from recovery.records import Worker

APART = timedelta(seconds=1)
FAR_APART = timedelta(seconds=60)
REDIS_TIMEOUT = 1.0
CENTURY = 3e9
"""Seconds: no clock is further off, so another program wrote that."""


def clocks(resources: Resources) -> Check:
    """This machine's clock, the servers' and the workers' show the same time."""
    mongo, uncertain = resources.store.server.clock()
    ahead = {"MongoDB": (mongo, uncertain)}
    if resources.broker.is_there(REDIS_TIMEOUT):  # else `redis` tells
        redis = resources.broker.condition()
        ahead["Redis"] = (redis.ahead, redis.uncertain)
    return judge_clocks(ahead, resources.store.overview.workers_alive())


def judge_clocks(ahead: dict[str, tuple[timedelta, timedelta]], workers: Iterable[Worker] = ()) -> Check:
    """What the differences mean; {server: (ahead of this machine, by how much that may be wrong)}. Workers tell how far
    theirs are ahead of MongoDB's."""
    found = ", ".join(f"{name} {_difference(by)} this machine" for name, (by, _) in ahead.items())
    of_workers = {
        one.name: timedelta(seconds=one.clock_ahead)
        for one in workers
        if one.clock_ahead is not None and abs(one.clock_ahead) < CENTURY
    }
    odd = [f"{name} {_difference(by)} MongoDB" for name, by in of_workers.items() if abs(by) > APART]
    if odd:
        found += f"; workers: {join_names(odd)}"
    # A slow answer must not look like a wrong clock.
    apart = max([*(abs(by) - uncertain for by, uncertain in ahead.values()), *map(abs, of_workers.values())])
    if apart <= APART:
        return ok("clocks", found)
    level = Level.PROBLEM if apart > FAR_APART else Level.WARNING
    return Check("clocks", level, Cause.CLOCKS_APART, found, "keep NTP on all machines")


def _difference(ahead: timedelta) -> str:
    seconds = ahead.total_seconds()
    return f"{abs(seconds):,.3f}s {'ahead of' if seconds >= 0 else 'behind'}"
