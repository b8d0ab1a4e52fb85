"""Batches hurt nobody: tasks of 1 ms and of 2 s of one actor, mixed, with batches and without; and 200 tasks of 0.5 s
on four slots, against the ideal.

How long each of the mix waited in the queue, from when it was first queued to when the attempt that ended it was
claimed. All are queued before the workers start, so what waits longest waits for slots; with batches it must not wait
for them in vain.
"""

from __future__ import annotations

import random
from typing import Any

from pymongo import MongoClient

from recovery import Recovery, Settings
from recovery.stack import Stack
from tests.bench import apps, workers
from tests.bench.lag import percentiles
from tests.bench.rows import Row, medians, ratio_row, row
from tests.bench.turns import in_turn, ratios

QUICK, SLOW, REPEATS, SEED = 4000, 40, 3, 14
NAPS, NAP = 200, 0.5
SLOTS = 4
FOUR = ["-c", str(SLOTS)]


def run(stack: Stack, settings: Settings) -> list[Row]:
    app = Recovery(settings)
    app.actors = apps.app.actors
    database: Any = MongoClient(settings.mongo_uri, tz_aware=True)[settings.database]
    pauses = [[0.001]] * QUICK + [[2.0]] * SLOW
    random.Random(SEED).shuffle(pauses)

    def wait(batch_size: int) -> float:
        started = [one.id for one in app.start_many("pause", pauses)]
        assert app.registrar.wait(60)
        with workers.ours(stack, settings.model_copy(update={"batch_size": batch_size}), 1, FOUR, ready=False):
            for process_id in started:
                app.result(process_id, timeout=600)
        found = database["decisions"].find({"_id": {"$gte": started[0], "$lt": started[-1] + "0"}})
        waited = [(one["claimedAt"] - one["enqueuedAt"]).total_seconds() for one in found]
        return percentiles(waited)[0]

    found = in_turn({"with": lambda: wait(settings.batch_size), "without": lambda: wait(1)}, REPEATS)
    title = "tasks of 1 ms and 2 s, p99 of their wait: with batches / without"
    with workers.ours(stack, settings, 1, FOUR, beat=True):
        app.result(app.start("naps", SLOTS, 0.0), timeout=60)  # the pool's first connections
        took = workers.seconds(lambda: app.result(app.start("naps", NAPS, NAP), timeout=300))
    ideal = NAPS * NAP / SLOTS
    return [
        ratio_row(title, ratios(found, "with", "without"), "<= 1.2", medians(found, "s")),
        row(f"{NAPS} tasks of {NAP:g} s on {SLOTS} slots / ideal", took / ideal, "<= 1.05", "ratio", f"{took:.1f} s"),
    ]
