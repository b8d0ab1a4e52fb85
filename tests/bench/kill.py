"""After a kill: 200 tasks of 0.5 s, all workers killed when a quarter is done, and started again 2 s later.

Default settings. The ideal is what is left, divided by the slots, from the moment of the restart. Then a healthy
task of 40 s, longer than anything here waits: it must be started once.
"""

from __future__ import annotations

import time
from typing import Any

from pymongo import MongoClient

from recovery import Recovery, Settings
from recovery.stack import Stack
from tests.bench import apps, workers
from tests.bench.rows import Row, row
from tests.waiting import wait_until

TASKS, SECONDS, WORKERS, PER_WORKER = 200, 0.5, 2, 2
SLOTS, PAUSE, LONG = WORKERS * PER_WORKER, 2.0, 40.0


def run(stack: Stack, settings: Settings) -> list[Row]:
    app = Recovery(settings)
    app.actors = apps.app.actors
    database: Any = MongoClient(settings.mongo_uri, tz_aware=True)[settings.database]
    naps = {"actor": "nap"}
    with workers.ours(stack, settings, WORKERS, ["-c", str(PER_WORKER)], beat=True) as children:
        process_id = app.start("naps", TASKS, SECONDS)

        def finished() -> int:
            return int(database["decisions"].count_documents({**naps, "state": "finished"}))

        wait_until(lambda: finished() >= TASKS / 4, 120, "a quarter to be done")
        for child in children[:WORKERS]:
            child.kill_group()
        cut_off = [d["_id"] for d in database["decisions"].find({**naps, "state": "working"})]
        left = TASKS - finished()
        _pause(PAUSE)
        restarted, restarted_at = time.monotonic(), app.resources.store.now()
        children += [workers.our_worker(stack, settings, ["-c", str(PER_WORKER)]) for _ in range(WORKERS)]

        def running_again() -> bool:
            again = {"_id": {"$in": cut_off}, "claimedAt": {"$gt": restarted_at}}
            return bool(database["decisions"].count_documents(again) == len(cut_off))

        wait_until(running_again, 120, "the tasks that were cut off to run again")
        claims = database["decisions"].find({"_id": {"$in": cut_off}})
        again = max((d["claimedAt"] - restarted_at).total_seconds() for d in claims)
        assert app.result(process_id, timeout=300) == TASKS
        took = time.monotonic() - restarted
        long = app.start("naps", 1, LONG)
        app.result(long, timeout=LONG * 3)
        starts = database["decisions"].find_one({**naps, "_id": {"$regex": f"^{long}/"}})["attempts"]
    ideal = left * SECONDS / SLOTS
    lost = TASKS - finished() + 1
    detail = f"{left} left on {SLOTS} slots: ideal {ideal:.1f} s, took {took:.1f} s from the restart"
    return [
        row("after a kill: time / ideal", took / ideal, "<= 1.2", "ratio", detail),
        row("after a kill: cut-off tasks run again", again, "<= 3", "s", f"{len(cut_off)} were cut off"),
        row("after a kill: tasks lost", lost, "<= 0", "tasks"),
        row("a healthy task of 40 s: times started", starts, "<= 1", "times"),
    ]


def _pause(seconds: float) -> None:
    """The outage itself: a part of what is measured."""
    time.sleep(seconds)
