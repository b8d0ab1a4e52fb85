"""`python -m tests.pictures [SECONDS]`: run a cluster under load, kill one of its workers, and draw its dashboards.

Four minutes: two workers are killed with all their processes, one after the other, and another takes the place of each
a little later; towards the end there is a rush of orders. A drill goes on all the time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from prometheus_client import start_http_server

from recovery import Recovery
from recovery.settings import Settings, load
from recovery.stack import ChildProcess, Stack
from recovery.stack.server_process import free_port
from tests.cli.command import ROOT, command, environment
from tests.docs.blocks import DOCS
from tests.metrics.panels import boards
from tests.metrics.prometheus import PROGRAM, Prometheus
from tests.pictures import shop
from tests.pictures.drawing import Window, draw
from tests.waiting import wait_until

APP = f"{shop.__name__}:app"
EVERY = 2.0
"""Seconds between two scrapes: short, since the whole takes minutes and not hours."""
DRAWN = ("recovery-cluster", "recovery-recovery", "recovery-processes")
KILLED, REPLACED, RUSH, CALM = (0.2, 0.45), 0.06, 0.7, 0.8
"""Parts of the time; of a replacement, after the kill."""


def main(seconds: float) -> None:
    """Write docs/dashboard-….png."""
    if PROGRAM is None:
        sys.exit("Prometheus is needed for the pictures: apt install prometheus")
    with tempfile.TemporaryDirectory(prefix="recovery-pictures-") as folder, Stack(Path(folder) / "stack") as stack:
        settings = load(
            mongo_uri=stack.mongo_uri, broker_url=stack.broker_url, database=f"pictures_{uuid.uuid4().hex[:8]}"
        )
        app = Recovery(settings)
        app.actors = shop.app.actors
        ports, application, probe = [free_port() for _ in range(3)], free_port(), free_port()

        def hire(port: int) -> ChildProcess:
            env = settings.model_copy(update={"metrics_port": port}).environment()
            # A worker removes what dead ones left in the temporary folder, as far as it can tell that they are dead.
            return stack.start_worker(APP, concurrency=3, env=env | {"TMPDIR": folder})

        stack.start_beat(APP, env=settings.environment())
        workers = {port: hire(port) for port in ports}
        # What starts the processes is scraped as well, as an application would be.
        start_http_server(application, "127.0.0.1")
        targets = [*ports, application, probe]
        with Prometheus(Path(folder) / "prometheus", targets, every=EVERY) as prometheus, drill(settings, probe):
            wait_until(lambda: prometheus.ask("max(recovery_workers_alive) == 3"), 60, "three workers")
            start = prometheus.now()
            events: list[tuple[float, Callable[[], object]]] = [
                event
                for part, port in zip(KILLED, ports, strict=False)
                for event in ((part, workers[port].kill_group), (part + REPLACED, partial(hire, port)))
            ]
            work(app, seconds, events)
            window = Window(start, prometheus.now(), EVERY, "12s")
            for uid in DRAWN:
                file = DOCS / f"dashboard-{uid.removeprefix('recovery-')}.png"
                draw(boards()[uid], prometheus, window, file)
                print(file)


@contextmanager
def drill(settings: Settings, port: int) -> Iterator[None]:
    """One after the other, as a probe."""
    env = environment(settings.model_copy(update={"metrics_port": port}).environment())
    watching = command("drill", "--watch", "--every", "10s", "--processes", "3")
    with subprocess.Popen(watching, env=env, cwd=ROOT, stdout=subprocess.DEVNULL) as probe:
        try:
            yield
        finally:
            probe.terminate()


def work(app: Recovery, seconds: float, events: list[tuple[float, Callable[[], object]]]) -> None:
    """Start processes for so long, and have things happen when their part of the time is over."""
    began, number, pause = time.monotonic(), 0, threading.Event()
    while (part := (time.monotonic() - began) / seconds) < 1:
        if events and part >= events[0][0]:
            events.pop(0)[1]()
        number += 1
        app.start("order", 1 + number % 4)
        if number % 12 == 0:
            app.start("report", 100, sound=number % 120 != 0)
        pause.wait(0.03 if RUSH < part < CALM else 0.3)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 240.0)
