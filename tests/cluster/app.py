"""The application that the cluster tests' workers serve. Its actors leave signs in a folder given as argument:
what really ran is told by them, not by our records."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from recovery import Failure, Recovery, heartbeat
from recovery.engine.run import hand, pace
from recovery.retry import BestEffort
from recovery.retry.strategies import Until, stop_after_attempts
from recovery.store.lifecycle import preferences

app = Recovery()
PAUSE = threading.Event()
REFRESH = "TEST_REFRESH"
"""Seconds after which a slot asks by itself what is set and blocked, in the workers of a test that says so."""
preferences.REFRESH = float(os.environ.get(REFRESH, preferences.REFRESH))
ALL_QUICK = "TEST_ALL_QUICK"
"""Set, tasks of milliseconds go in whole batches in the workers of a test, however busy the machine is."""
if os.environ.get(ALL_QUICK):
    pace.QUICK = pace.LEAST_SLOW = hand.SLOW = hand.LONGEST = 2.0
    pace.BATCH_SECONDS = 100.0


def run_until(folder: str, seconds: float, value: Any) -> Any:
    """Leave the sign 'began', then go on for so long, or until somebody leaves 'go'; the value then."""
    (Path(folder) / f"began-{os.getpid()}-{uuid.uuid4().hex[:8]}").touch()
    until = time.monotonic() + seconds
    while time.monotonic() < until and not (Path(folder) / "go").exists():
        PAUSE.wait(0.02)
    return value


@app.actor(worker_timeout=600)
def slow(folder: str, seconds: float) -> int:
    return int(run_until(folder, seconds, os.getpid()))


@app.process(worker_timeout=600)
def one_slow(folder: str, seconds: float) -> Any:
    return slow.schedule(folder, seconds)


@app.actor(worker_timeout=600)
def quick(folder: str, number: int, kills: int, what: str) -> int:
    """At the number `kills` it ends the slot that runs it, or the whole worker, the first time."""
    with suppress(FileExistsError):
        if number == kills:
            (Path(folder) / "killed").touch(exist_ok=False)
            if what == "worker":
                os.killpg(0, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
    return number


@app.process(worker_timeout=600)
def many_quick(folder: str, count: int, kills: int, what: str) -> Any:
    return [quick.schedule(folder, number, kills, what) for number in range(count)]


@app.actor(worker_timeout=600)
def starts_another(folder: str) -> int:
    """Waits beside a subprocess, and leaves the sign 'ended' where it comes to its end."""
    other = subprocess.Popen(["sleep", "600"])
    (Path(folder) / f"other-{other.pid}").touch()
    run_until(folder, 600, None)
    (Path(folder) / f"ended-{os.getpid()}").touch()
    other.kill()
    return other.wait()


@app.process(worker_timeout=600)
def one_that_starts_another(folder: str) -> Any:
    return starts_another.schedule(folder)


@app.actor(worker_timeout=600)
def after_all(pids: list[int]) -> list[int]:
    return pids


@app.process(worker_timeout=600)
def many_slow(folder: str, count: int, seconds: float) -> Any:
    return after_all.schedule([slow.schedule(folder, seconds) for _ in range(count)])


@app.actor(worker_timeout=600, accept_first=False)
def strict(folder: str, seconds: float) -> int:
    return int(run_until(folder, seconds, os.getpid()))


@app.process(worker_timeout=600)
def one_strict(folder: str, seconds: float) -> Any:
    return strict.schedule(folder, seconds)


@app.actor(worker_timeout=1.0)
def time_limit(folder: str, seconds: float) -> int:
    return int(run_until(folder, seconds, os.getpid()))


@app.process(worker_timeout=1.0)
def one_impatient(folder: str, seconds: float) -> Any:
    return time_limit.schedule(folder, seconds)


@app.actor(worker_timeout=0.9, auto_heartbeat=True)
def long_and_alive(folder: str, seconds: float) -> int:
    return int(run_until(folder, seconds, os.getpid()))


@app.process(worker_timeout=600)
def one_long(folder: str, seconds: float) -> Any:
    return long_and_alive.schedule(folder, seconds)


@app.actor(worker_timeout=600, accept_first=False)
def beating(folder: str) -> str:
    """Beats until it is told that its claim is lost."""
    # Told before the sign is left: whoever waits for it may stop this process at once.
    first = not any(Path(folder).glob("began-*"))
    (Path(folder) / f"began-{os.getpid()}-{uuid.uuid4().hex[:8]}").touch()
    try:
        while first:
            PAUSE.wait(0.05)
            heartbeat()
    finally:
        if first:
            (Path(folder) / "told").touch()
    return "second"


@app.process(worker_timeout=600)
def one_beating(folder: str) -> Any:
    return beating.schedule(folder)


@app.process(worker_timeout=600, max_work_timeouts=2)
def ends_its_process(signal_or_code: int) -> None:
    """Negative: by this signal."""
    if signal_or_code < 0:
        os.kill(os.getpid(), -signal_or_code)
    os._exit(signal_or_code)


POISON_LIMIT = 5
"""Attempts that a poison task may lose."""


def die(folder: str) -> None:
    """Leave a sign with the time, and kill the process that runs this."""
    (Path(folder) / f"poison-{uuid.uuid4().hex}").write_text(str(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)


app.process("poison", worker_timeout=600, max_work_timeouts=POISON_LIMIT, lost_initial=0.5, lost_maximum=30)(die)
app.process("poison_by_strategy", worker_timeout=600, retry=Until(stop_after_attempts(3), BestEffort(lambda _: 1.5)))(
    die
)


@app.actor(worker_timeout=600)
def picky(folder: str) -> str:
    """Fails until somebody leaves 'go'."""
    if not (Path(folder) / "go").exists():
        raise LookupError("no go")
    return "went"


@app.actor(worker_timeout=600)
def told_of(found: Any) -> Any:
    return found.kind if isinstance(found, Failure) else found


@app.process(worker_timeout=600)
def two_picky(folder: str) -> Any:
    """One that may fail, and one that may not."""
    return [told_of.schedule(picky.options(fallible=True).schedule(folder)), picky.schedule(folder)]
