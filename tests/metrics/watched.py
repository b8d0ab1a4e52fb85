"""An application of which a little of everything is to be seen on the dashboards."""

from __future__ import annotations

import contextlib
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
