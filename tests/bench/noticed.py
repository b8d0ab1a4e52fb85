"""How long after a death a task runs again, with default settings: what README and docs/failures.md say.

    a process of the pool     SIGKILL to the one that runs the task; its parent sees it
    a worker                  SIGKILL to its whole group; a worker of the same host sees it
    a machine                 SIGSTOP to a whole worker, whose processes are still there: only its silence tells

From just before the signal to the claim of the next attempt, by MongoDB's clock. A slot is free for it.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable
from typing import Any

from pymongo import MongoClient

from recovery import Recovery, Settings
from recovery.stack import Stack
from recovery.stack.child import ChildProcess
from tests.bench import apps, workers
from tests.bench.rows import Row, row
from tests.waiting import wait_until

REPEATS, LONG = 5, 600.0
"""Between two heartbeats a death comes at any moment, so the longest of some is told."""


def run(stack: Stack, settings: Settings, repeats: int = REPEATS) -> list[Row]:
    deaths: list[tuple[str, Callable[[ChildProcess, int], None], str]] = [
        ("a process of the pool", lambda _worker, pid: os.kill(pid, signal.SIGKILL), "<= 1"),
        ("a worker, others on its machine", lambda worker, _pid: worker.kill_group(), "<= 3"),
        ("a machine", lambda worker, _pid: worker.freeze(), "<= 8"),
    ]
    rows = []
    for name, kill, bar in deaths:
        took = sorted(_again(stack, settings, kill) for _ in range(repeats))
        detail = f"{took[0]:.2f} to {took[-1]:.2f} s, the median {took[repeats // 2]:.2f} s, of {repeats}"
        rows.append(row(f"noticed, and run again: {name}", took[-1], bar, "s", detail))
    return rows


def _again(stack: Stack, settings: Settings, kill: Callable[[ChildProcess, int], None]) -> float:
    """Seconds until the task of a worker that is killed so runs again."""
    # A database of its own: what was under way before takes no slot.
    settings = settings.model_copy(update={"database": f"{settings.database}_{uuid.uuid4().hex[:8]}"})
    app = Recovery(settings)
    app.actors = apps.app.actors
    database: Any = MongoClient(settings.mongo_uri, tz_aware=True)[settings.database]
    with workers.ours(stack, settings, 2, ["-c", "1"], beat=True) as children:
        nap = {"actor": "nap", "_id": {"$regex": f"^{app.start('naps', 1, LONG)}/"}}

        def claimed(attempts: int) -> Any:
            return database["decisions"].find_one({**nap, "state": "working", "attempts": attempts})

        holder = wait_until(lambda: claimed(1), 60, "the first attempt")["worker"]
        worker_id, _, pid = holder.partition("#")
        told = database["workers"].find_one({"_id": worker_id})
        (worker,) = [child for child in children if child.pid == told["pid"]]
        killed_at = app.resources.store.now()
        kill(worker, int(pid))
        again = wait_until(lambda: claimed(2), 120, "the second attempt")
        for child in children:
            child.kill_group()
    return float((again["claimedAt"] - killed_at).total_seconds())
