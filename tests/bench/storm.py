"""Whether a storm makes others late: 60,000 tasks of one actor are overdue at once, as after an outage, while 1 % of
100,000 tasks of other actors fall overdue every second.

As in `lag`, the scanners are a real worker's, and the benchmark takes what was requeued. The storm is over when the
last of its tasks was requeued; the others are told apart by whether they fell due before it, while it lasted, or after.
Those of the scan before it count as well as if they fell due in it: they are requeued by the same scan.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import redis
from pymongo import MongoClient

from recovery import Recovery, Settings
from recovery.stack import Stack
from tests.bench import workers
from tests.bench.lag import LEAD, WORKING, percentiles, spread, take
from tests.bench.requeue import fill
from tests.bench.rows import Row, row

STORM, CALM, SECONDS = 60_000, 15, 45
"""Tasks of the storm, when it comes, and how long all of it is looked at, in seconds."""


def run(stack: Stack, settings: Settings, storm: int = STORM, count: int = WORKING) -> list[Row]:
    store = Recovery(settings).resources.store
    database: Any = MongoClient(settings.mongo_uri, tz_aware=True)[settings.database]
    decisions, broker = database["decisions"], redis.Redis.from_url(settings.broker_url)
    with workers.ours(stack, settings, 1, ["-c", "1"], beat=True):
        fill(database, count, store.now() + timedelta(days=1))
        begin = store.now() + timedelta(seconds=2 * LEAD)
        others = spread(decisions, begin, SECONDS)
        strikes = begin + timedelta(seconds=CALM)
        fill(database, storm, strikes, actors="c")
        struck = {one["_id"]: strikes for one in decisions.find({"actor": "c"}, {"_id": True})}
        assert store.now() < begin, "the first were overdue before all had their deadlines"
        queued = take(decisions, broker, others | struck, queues="abc")
    over = max(queued[one] for one in struck)
    interval = timedelta(seconds=settings.scan_interval)

    def late(least: datetime, most: datetime) -> tuple[float, str]:
        found = [(queued[one] - due).total_seconds() for one, due in others.items() if least <= due < most]
        p99, told = percentiles(found)
        return p99, f"{told} of {len(found):,}"

    before, calm = late(begin, strikes - interval)
    during, told = late(strikes - interval, over)
    after, again = late(over, begin + timedelta(seconds=SECONDS))
    detail = f"{told}; {len(struck):,} requeued within {(over - strikes).total_seconds():.2f} s; before: {calm}"
    return [
        row("lag of others in a storm, p99", during / settings.scan_interval, "<= 2", "intervals", detail),
        row("lag of others in a storm / before it, p99", during / before, "", "ratio"),
        row("lag after a storm / before it, p99", after / before, "<= 1.3", "ratio", again),
    ]
