"""The applications that benchmark workers serve: ours and plain Celery's, doing the same."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery

from recovery import Recovery

PART = 1000

app = Recovery()

plain = Celery("plain", broker=os.environ.get("RECOVERY_BROKER_URL"), backend=os.environ.get("PLAIN_BACKEND"))


@app.actor()
def step(_before: Any = None, seconds: float = 0.0) -> int:
    if seconds:
        time.sleep(seconds)
    return 1


@app.process()
def chain(steps: int, seconds: float = 0.0) -> Any:
    """`steps` steps, each waiting for the one before; this decider is one more task."""
    promise = None
    for _ in range(steps):
        promise = step.schedule(promise, seconds)
    return promise


@plain.task(name="plain.step")  # type: ignore[untyped-decorator]
def plain_step(_before: Any = None, seconds: float = 0.0) -> int:
    if seconds:
        time.sleep(seconds)
    return 1


@plain.task(name="plain.count")  # type: ignore[untyped-decorator]
def plain_count(values: list[Any]) -> int:
    return len(values)


@plain.task(name="plain.nothing", ignore_result=True)  # type: ignore[untyped-decorator]
def plain_nothing() -> int:
    return 1


@app.process()
def nothing() -> int:
    return 1


@app.process()
def pause(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@app.actor()
def nap(seconds: float) -> float:
    time.sleep(seconds)
    return time.time()


@app.actor()
def count_all(values: list[Any]) -> int:
    return len(values)


@app.process()
def naps(count: int, seconds: float) -> Any:
    return count_all.schedule([nap.schedule(seconds) for _ in range(count)])


@app.process()
def wide(count: int) -> Any:
    return count_all.schedule([step.schedule() for _ in range(count)])


@app.actor()
def part(count: int) -> Any:
    return count_all.schedule([step.schedule() for _ in range(count)])


@app.actor()
def add_up(values: list[int]) -> int:
    return sum(values)


@app.process()
def wide_in_parts(count: int) -> Any:
    """The same where they are too many for one record: each part schedules a thousand."""
    return add_up.schedule([part.schedule(PART) for _ in range(count // PART)])
