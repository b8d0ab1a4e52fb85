"""Runs all checks. What one of them can't find out stops no other, and is a finding with its reason."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from recovery.addresses import told
from recovery.engine import Resources
from recovery.errors import BrokerError, StoreError, StoreUnavailable
from recovery.health import (
    calls,
    clocks,
    installation,
    keys,
    markers,
    members,
    operations,
    pins,
    polls,
    records,
    rights,
    scanners,
    schedules,
    secrets,
    selections,
    servers,
    slots,
    workers,
)
from recovery.health.model import Cause, Check, Level, unasked
from recovery.store.views.overview import time_limit

log = logging.getLogger(__name__)

Ask = Callable[[Resources], Check]

ASK_TIMEOUT = 10.0
"""Seconds for one check: looking up the graphs of a million running processes takes some four."""

ADVICE = "ask again; if it stays, read the server's log"
AWAY_ADVICE = "see `mongodb`, `replica set` and `writes`, or `redis`"

MONGODB, REDIS = "mongodb", "redis"
CHECKS: tuple[tuple[str, Ask, tuple[str, ...]], ...] = (
    (MONGODB, servers.mongodb, ()),
    (REDIS, servers.redis, ()),
    ("replica set", members.replica_set, ()),
    ("rights", rights.rights, (MONGODB,)),
    ("secrets", secrets.secrets, ()),
    ("concerns", servers.concerns, (MONGODB,)),
    ("writes", servers.writes, (MONGODB,)),
    ("redis memory", servers.memory, (REDIS,)),
    ("clocks", clocks.clocks, (MONGODB,)),
    ("packages", installation.packages, ()),
    ("sweeps", installation.sweeps, ()),
    ("collections", installation.collections, (MONGODB,)),
    ("workers", workers.workers, (MONGODB,)),
    ("heartbeats", workers.heartbeats, (MONGODB, REDIS)),
    ("slots", slots.slots, (MONGODB,)),
    ("actors", workers.actors, (MONGODB,)),
    ("calls", calls.calls, (MONGODB,)),
    ("pins", pins.pins, (MONGODB,)),
    ("queues", workers.queues, (MONGODB, REDIS)),
    ("keys", keys.keys, (MONGODB, REDIS)),
    ("polls", polls.polls, (MONGODB,)),
    ("beat", scanners.beat, (MONGODB, REDIS)),
    ("nudges", scanners.nudges, (REDIS,)),
    ("scanners", scanners.scanners, (MONGODB,)),
    ("schedules", schedules.schedules, (MONGODB,)),
    ("selections", selections.selections, (MONGODB,)),
    ("operations", operations.operations, (MONGODB,)),
    ("deadlines", records.deadlines, (MONGODB,)),
    ("damage", records.damaged, (MONGODB,)),
    ("processes", records.broken, (MONGODB,)),
    ("markers", markers.markers, (MONGODB,)),
)
"""(name, check, servers that it asks), the servers first."""
SERVERS = (MONGODB, REDIS)


def examine(resources: Resources, checks: Sequence[tuple[str, Ask, tuple[str, ...]]] = CHECKS) -> Iterator[Check]:
    """The checks' answers, one after the other. Does not raise."""
    away: dict[str, str] = {}
    for name, ask, needs in checks:
        if missing := [away[server] for server in needs if server in away]:
            yield unasked(name, f"not asked, since {' and '.join(missing)}", "see there")
            continue
        check = _ask(name, ask, resources)
        if name in SERVERS and not check.asked:
            away[name] = f"{name} did not answer"
        elif check.cause is Cause.WRITES_NOT_ACKNOWLEDGED:
            # A primary that no majority follows tells what it had, and would say of all workers that they are silent.
            away[MONGODB] = "no majority acknowledges writes"
        yield check


def _ask(name: str, ask: Ask, resources: Resources) -> Check:
    try:
        with time_limit(ASK_TIMEOUT):
            return ask(resources)
    except Exception as error:  # whatever it is, the others must be asked
        log.debug("%s could not be asked", name, exc_info=True)
        settings = resources.settings
        said = told(error, settings.mongo_uri, settings.broker_url)[:300]
        # A driver's error, as the store and the broker tell it, begins with its own kind.
        if isinstance(error, StoreUnavailable | BrokerError):
            return unasked(name, f"not answered: {said}", AWAY_ADVICE, Cause.ASK_FAILED)
        kind = "" if isinstance(error, StoreError) else f"{type(error).__name__}: "
        found = f"could not be asked: {kind}{said}"
        return Check(name, Level.PROBLEM, Cause.ASK_FAILED, found, ADVICE, asked=False)
