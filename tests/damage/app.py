"""An application whose processes stand still in every state until a test lets them go on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from recovery import Backoff, Recovery

app = Recovery()
NEVER = threading.Event()


@app.actor(worker_timeout=4)
def add(one: int, other: int) -> int:
    return one + other


@app.actor(worker_timeout=8)
def gated(folder: str, value: int) -> int:
    """Return the value as soon as the file `go` is there."""
    while not (Path(folder) / "go").exists():
        NEVER.wait(0.05)
    return value


@app.actor(worker_timeout=4)
def held(value: int) -> int:
    """Return the value. Its actor is blocked until the test unblocks it."""
    return value


@app.actor(worker_timeout=4, retry=Backoff(initial=3.0, maximum=3.0))
def flaky(folder: str, value: int) -> int:
    """Fail with an error that is retried until the file `go` is there."""
    if not (Path(folder) / "go").exists():
        raise ConnectionError("the other side is away")
    return value


@app.actor(worker_timeout=4)
def failing() -> int:
    raise ValueError("no luck")


@app.process()
def tick() -> int:
    return 1


@app.process(idle_timeout=2.0)
def order(shape: str, folder: str) -> Any:
    """Return 3, by a task that stands still in the state `shape`, and one that waits for it."""
    match shape:
        case "working":
            first = gated.schedule(folder, 2)
        case "queued":
            first = held.schedule(2)
        case "delayed":
            first = add.options(delay=8.0).schedule(1, 1)
        case "retried":
            first = flaky.schedule(folder, 2)
        case "broken":
            first = failing.schedule()
        case _:
            first = add.schedule(1, 1)
    return add.schedule(first, 1)
