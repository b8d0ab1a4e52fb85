"""Runs all checks. A check that can't find something out stops no other: that is a finding, with its reason."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from recovery.addresses import told
from recovery.engine import Resources
from recovery.errors import BrokerError, StoreError, StoreUnavailable
from recovery.health import (
    beat_and_scanners,
    live_workers,
    machine,
    mongodb_server,
    operator_records,
    redis_server,
    stored_records,
    untaken_tasks,
    versions,
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
    (MONGODB, mongodb_server.mongodb, ()),
    (REDIS, redis_server.redis, ()),
    ("replica set", mongodb_server.replica_set, ()),
    ("rights", mongodb_server.rights, (MONGODB,)),
    ("secrets", machine.secrets, ()),
    ("concerns", mongodb_server.concerns, (MONGODB,)),
    ("writes", mongodb_server.writes, (MONGODB,)),
    ("redis memory", redis_server.memory, (REDIS,)),
    ("clocks", machine.clocks, (MONGODB,)),
    ("packages", machine.packages, ()),
    ("sweeps", machine.sweeps, ()),
    ("collections", stored_records.collections, (MONGODB,)),
    ("workers", live_workers.workers, (MONGODB,)),
    ("heartbeats", live_workers.heartbeats, (MONGODB, REDIS)),
    ("slots", live_workers.slots, (MONGODB,)),
    ("spark", live_workers.spark_worker, (MONGODB,)),
    ("actors", untaken_tasks.actors, (MONGODB,)),
    ("calls", versions.calls, (MONGODB,)),
    ("pins", versions.pins, (MONGODB,)),
    ("queues", untaken_tasks.queues, (MONGODB, REDIS)),
    ("keys", redis_server.keys, (MONGODB, REDIS)),
    ("polls", live_workers.polls, (MONGODB,)),
    ("beat", beat_and_scanners.beat, (MONGODB, REDIS)),
    ("nudges", beat_and_scanners.nudges, (REDIS,)),
    ("scanners", beat_and_scanners.scanners, (MONGODB,)),
    ("schedules", operator_records.schedules, (MONGODB,)),
    ("selections", operator_records.selections, (MONGODB,)),
    ("operations", operator_records.operations, (MONGODB,)),
    ("deadlines", stored_records.deadlines, (MONGODB,)),
    ("damage", stored_records.damaged, (MONGODB,)),
    ("rejections", stored_records.rejections, (MONGODB,)),
    ("processes", stored_records.broken, (MONGODB,)),
    ("markers", operator_records.markers, (MONGODB,)),
)
"""(name, check, servers that it asks), the servers first."""
SERVERS = (MONGODB, REDIS)


def examine(resources: Resources, checks: Sequence[tuple[str, Ask, tuple[str, ...]]] = CHECKS) -> Iterator[Check]:
    """Run the checks one after another and yield what each found. Does not raise."""
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
