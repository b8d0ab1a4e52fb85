"""What a cluster without work asks for: of MongoDB, of Redis, and of the CPU, by one worker that scans and its beat.

What this program and its drivers ask for by themselves is measured before, and not counted. Beside it, what a plain
Celery worker takes that waits for as many tasks: it tells how quick the machine is just now.
"""

from __future__ import annotations

import time
from typing import Any

import psutil
from pymongo import MongoClient
from redis import Redis

from recovery import Recovery, Settings
from recovery.stack import Stack
from tests.bench import apps, workers
from tests.bench.rows import Row, row
from tests.waiting import wait_until

SETTLE, SECONDS = 8.0, 30.0


def run(stack: Stack, settings: Settings) -> list[Row]:
    app = Recovery(settings)
    app.actors = apps.app.actors
    client: Any = MongoClient(settings.mongo_uri)
    redis: Any = Redis.from_url(settings.broker_url)
    store = app.resources.store  # its driver watches the servers from here on, as this one's does
    store.now()
    _wait(SETTLE)
    before = _seen(client, redis, [])
    _wait(SECONDS)
    alone = {name: (value - before[name]) / SECONDS for name, value in _seen(client, redis, []).items()}
    with workers.ours(stack, settings, 1, ["-c", "2"], beat=True) as children:
        app.result(app.start("wide", 10), timeout=60)
        _wait(SETTLE)
        seen = _seen(client, redis, [child.pid for child in children])
        _wait(SECONDS)
        now = _seen(client, redis, [child.pid for child in children])
    with workers.plain(stack, settings, 1, ["-c", "2"]) as (plain,):
        _wait(SETTLE)
        used = _cpu(plain.pid)
        _wait(SECONDS)
        beside = f"a plain Celery worker on the same broker: {100 * (_cpu(plain.pid) - used) / SECONDS:.2f}"
    each = {name: (now[name] - seen[name]) / SECONDS - alone.get(name, 0.0) for name in now}
    told = ", ".join(f"{name[6:]} {value:.1f}" for name, value in each.items() if name.startswith("mongo ") and value)
    operations = sum(value for name, value in each.items() if name.startswith("mongo "))
    return [
        row("idle: MongoDB's operations for one worker", operations, "<= 5", "a second", told),
        row("idle: CPU of a worker", each["worker"] * 100, "<= 1", "% of a core", beside),
        row("idle: CPU of a beat", each["beat"] * 100, "<= 1", "% of a core"),
        row("idle: Redis's commands", each["redis"], "", "a second"),
    ]


def _wait(seconds: float) -> None:
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > seconds, seconds + 5, "a while without work")


def _seen(client: Any, redis: Any, pids: list[int]) -> dict[str, float]:
    commands = client.admin.command("serverStatus")["metrics"]["commands"]
    ours = ("find", "aggregate", "update", "insert", "delete", "findAndModify", "hello", "getMore")
    found = {f"mongo {name}": float(commands[name]["total"]) for name in ours}
    found |= dict(zip(("worker", "beat"), map(_cpu, pids), strict=False))
    return found | {"redis": float(redis.info()["total_commands_processed"])}


def _cpu(pid: int) -> float:
    """Seconds that a process and those that it started have used."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))
