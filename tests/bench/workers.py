"""Workers for benchmarks, started and waited for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pymongo import MongoClient

from recovery.settings import Settings
from recovery.stack import Stack
from recovery.stack.child import ChildProcess, stop_all
from tests.waiting import wait_until

QUIET = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "warning"]
_started = 0


@contextmanager
def ours(
    stack: Stack, settings: Settings, workers: int, options: Sequence[str], *, beat: bool = False, ready: bool = True
) -> Iterator[list[ChildProcess]]:
    """Workers of `tests.bench.apps:app`, `ready` to work, or begun."""
    database: Any = MongoClient(settings.mongo_uri)[settings.database]
    children = [our_worker(stack, settings, options) for _ in range(workers)]
    told = {"pid": {"$in": [child.pid for child in children]}}
    if beat:
        children.append(_child(stack, "beat", ["beat", "--schedule", str(stack.data_dir / "beat-schedule")], settings))
    try:
        if ready:
            wait_until(lambda: database["workers"].count_documents(told) >= workers, 60, "workers")
        yield children
    finally:
        stop_all(children, 15)


def our_worker(stack: Stack, settings: Settings, options: Sequence[str]) -> ChildProcess:
    """One worker; not waited for."""
    return _child(stack, "ours", ["worker", *QUIET, *options], settings)


def _child(stack: Stack, kind: str, arguments: list[str], settings: Settings) -> ChildProcess:
    global _started
    _started += 1
    name = f"{kind}-{_started}"
    if arguments[0] == "worker":
        arguments = [*arguments, "-n", f"{name}@%h"]
    environment = {**os.environ, **settings.environment(), "RECOVERY_APP": "tests.bench.apps:app"}
    command = [sys.executable, "-m", "celery", "-A", "recovery.worker.app", *arguments]
    return ChildProcess(name, command, stack.log(name), env=environment)


@contextmanager
def plain(
    stack: Stack, settings: Settings, workers: int, options: Sequence[str], *, ready: bool = True
) -> Iterator[list[ChildProcess]]:
    """Plain Celery workers on the same broker, `ready` to work, or begun."""
    global _started
    children = list[ChildProcess]()
    environment = {**os.environ, **settings.environment(), "PLAIN_BACKEND": settings.broker_url}
    for _ in range(workers):
        _started += 1
        name = f"plain-{_started}"
        command = [sys.executable, "-m", "celery", "-A", "tests.bench.apps:plain", "worker", *QUIET, *options]
        children.append(ChildProcess(name, [*command, "-n", f"{name}@%h"], stack.log(name), env=environment))
    try:
        from tests.bench import apps

        apps.plain.conf.update(broker_url=settings.broker_url, result_backend=settings.broker_url)
        if ready:
            apps.plain_step.delay().get(timeout=60)
            wait_until(lambda: len(apps.plain.control.ping(timeout=0.5)) >= workers, 60, "plain workers")
        yield children
    finally:
        stop_all(children, 15)


def plain_results(started: Iterable[Any], timeout: float) -> list[Any]:
    """What plain Celery's tasks came to. Their parents are not followed: with each message that comes, a client that
    waits for a chord or a chain would look at all of these, and a chord of ten thousand takes minutes that are no work
    of Celery's workers."""
    return [result.get(timeout=timeout, follow_parents=False) for result in started]


def seconds(work: Any) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
