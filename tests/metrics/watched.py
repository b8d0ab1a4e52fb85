"""An application of which a little of everything is to be seen on the dashboards."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from recovery import Recovery
from recovery.errors import StartRefused
from tests.cluster.app import run_until

app = Recovery()


@app.actor()
def work(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@app.process()
def steady(tasks: int, seconds: float) -> Any:
    """What goes on all the time."""
    return [work.schedule(seconds) for _ in range(tasks)]


@app.process(schedule="1s", overlap="allow")
def tick() -> None:
    """Started by its schedule, on a worker."""


@app.actor(worker_timeout=600)
def held(folder: str) -> None:
    run_until(folder, 600, None)


@app.process(worker_timeout=600, process_timeout=0.5)
def long(folder: str) -> Any:
    """Runs past its time, and until somebody leaves 'go'."""
    return held.schedule(folder)


@app.actor(retry_initial=0.1)
def flaky(folder: str) -> None:
    """Fails the first time."""
    sign = Path(folder) / "flaky"
    if not sign.exists():
        sign.touch()
        raise ConnectionRefusedError("away")


@app.process()
def retried(folder: str) -> Any:
    return flaky.schedule(folder)


@app.process(markers=True, retry=None)
def hopeless() -> None:
    raise ConnectionRefusedError("away")


@app.process()
def starts_hopeless() -> None:
    """On a worker, whose metrics are scraped."""
    with contextlib.suppress(StartRefused):
        app.start(hopeless)


@app.actor(worker_timeout=1.0, max_work_timeouts=5)
def hangs() -> None:
    """Never comes back."""
    while True:
        time.sleep(3600)


@app.process()
def one_that_hangs() -> Any:
    return hangs.schedule()


@app.actor()
def never_called() -> None:
    """To be blocked."""


@app.process()
def after_a_while(folder: str) -> Any:
    """Schedules others once somebody leaves 'go'."""
    run_until(folder, 600, None)
    return [work.schedule(0.0) for _ in range(20)]


@app.actor(max_work_timeouts=1000)
def kills() -> None:
    """Its own process, whenever it is tried."""
    os._exit(1)


@app.process()
def one_that_kills() -> Any:
    return kills.schedule()
