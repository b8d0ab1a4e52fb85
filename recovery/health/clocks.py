"""The check of the clocks: this machine's against MongoDB's and Redis's.

All deadlines are set and compared by MongoDB's clock alone, so no difference breaks recovery. What lies is what people
read: process ids sort by the clock of the machine that made them, and logs of two machines are laid side by side.
From APART on their order is wrong by more than a step of a process takes. From FAR_APART on nobody sets this clock:
it is off by a whole first look at a process (`idle_timeout`), and what beats send with an expiry (a sweep) is taken
for expired, or never.
"""

from __future__ import annotations

from datetime import timedelta

from recovery.engine import Resources
from recovery.health.model import Check, Level

APART = timedelta(seconds=1)
FAR_APART = timedelta(seconds=60)


def clocks(resources: Resources) -> Check:
    """This machine's clock and the servers' show the same time."""
    mongo, uncertain = resources.store.server.clock()
    redis = resources.broker.condition()
    return judge_clocks({"MongoDB": (mongo, uncertain), "Redis": (redis.ahead, redis.uncertain)})


def judge_clocks(ahead: dict[str, tuple[timedelta, timedelta]]) -> Check:
    """What the differences mean; {server: (ahead of this machine, by how much that may be wrong)}."""
    found = ", ".join(f"{name} {_difference(by)}" for name, (by, _) in ahead.items())
    # A slow answer must not look like a wrong clock.
    apart = max(abs(by) - uncertain for by, uncertain in ahead.values())
    level = Level.PROBLEM if apart > FAR_APART else Level.WARNING if apart > APART else Level.OK
    return Check("clocks", level, found, "keep NTP on all machines" if level is not Level.OK else "")


def _difference(ahead: timedelta) -> str:
    seconds = ahead.total_seconds()
    return f"{abs(seconds):,.3f}s {'ahead of' if seconds >= 0 else 'behind'} this machine"
