"""An application whose actors do what none should. Served by the workers of the tests that tell what comes of it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

from recovery import Recovery

app = Recovery()


class Own(BaseException):
    """An application's, of no kind that anybody knows."""


def interrupts() -> None:
    raise KeyboardInterrupt


def cancels() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    asyncio.run(cancelled())


def closes() -> None:
    raise GeneratorExit


def leaves() -> None:
    sys.exit(3)


def raises_own() -> None:
    raise Own("of our own")


RAISES = {
    "KeyboardInterrupt": interrupts,
    "CancelledError": cancels,
    "GeneratorExit": closes,
    "SystemExit": leaves,
    "Own": raises_own,
}
"""{kind of the error: a function that raises it}."""


@app.actor(worker_timeout=600)
def fails(kind: str) -> None:
    RAISES[kind]()


@app.process(worker_timeout=600)
def one_that_fails(kind: str) -> Any:
    return fails.schedule(kind)


@app.process(worker_timeout=600)
def well() -> int:
    """A process that does nothing wrong: the pid of who ran it."""
    return os.getpid()


HOURS = 3600
TIMEOUT = 1.0
"""Of actors that hang; short, and two looks long."""
ATTEMPTS = 2


def waits(_: str) -> None:
    """For what never comes, as from a server without a time-out."""
    threading.Event().wait()


def ignores_sigterm(_: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Event().wait()


def holds_the_interpreter(_: str) -> None:
    """No other thread of its process goes on, its heartbeats' neither."""
    ctypes.PyDLL(None).sleep(HOURS)


def forks(folder: str) -> None:
    """Waits for two that it started; one of them has started a third."""
    subprocess.Popen(["/bin/sh", "-c", f"sleep {HOURS} & echo $! > '{folder}/grandchild'; wait"])
    if not os.fork():
        (Path(folder) / "forked").write_text(str(os.getpid()))
        threading.Event().wait()
    threading.Event().wait()


class Endless(Exception):
    def __str__(self) -> str:
        threading.Event().wait()
        return ""


def fails_without_end(_: str) -> None:
    """With an error whose text never comes."""
    raise Endless


HANGS = {
    "waits": waits,
    "ignores SIGTERM": ignores_sigterm,
    "holds": holds_the_interpreter,
    "forks": forks,
    "fails": fails_without_end,
}
"""{how: a function that never returns}."""
NOT = "not"
"""How none hangs."""


def began(folder: str) -> None:
    (Path(folder) / f"began-{os.getpid()}-{uuid.uuid4().hex[:8]}").touch()


@app.actor(worker_timeout=TIMEOUT, max_work_timeouts=ATTEMPTS)
def hangs(folder: str, how: str) -> None:
    began(folder)
    if how != NOT:
        HANGS[how](folder)


@app.process(worker_timeout=600)
def one_that_hangs(folder: str, how: str) -> Any:
    return hangs.schedule(folder, how)


@app.process(worker_timeout=600)
def many(folder: str, hanging: int, well: int) -> Any:
    return [hangs.schedule(folder, how) for how in ["waits"] * hanging + [NOT] * well]


@app.actor(worker_timeout=TIMEOUT, max_work_timeouts=ATTEMPTS, auto_heartbeat=True)
def beats_and_holds(folder: str) -> None:
    began(folder)
    holds_the_interpreter(folder)


@app.process(worker_timeout=600)
def one_that_holds(folder: str) -> Any:
    return beats_and_holds.schedule(folder)


@app.actor(worker_timeout=600)
def holds_for(folder: str, seconds: int) -> str:
    """The first attempt holds the interpreter; the second is done at once."""
    first = not any(Path(folder).glob("began-*"))
    began(folder)
    if first:
        ctypes.PyDLL(None).sleep(seconds)
    return "first" if first else "second"


@app.process(worker_timeout=600)
def one_that_holds_for(folder: str, seconds: int) -> Any:
    return holds_for.schedule(folder, seconds)


@app.actor(worker_timeout=TIMEOUT)
def slow(folder: str) -> str:
    """The first attempt brings its value half a time-out late; the second never does."""
    first = not any(Path(folder).glob("began-*"))
    began(folder)
    threading.Event().wait(1.7 * TIMEOUT if first else None)
    return "first"


@app.process(worker_timeout=600)
def one_slow(folder: str) -> Any:
    return slow.schedule(folder)


@app.actor(worker_timeout=600)
def asks_another() -> None:
    """Fails with whom it asks."""
    subprocess.run(["sleep", str(HOURS)], check=True)


@app.process(worker_timeout=600)
def one_that_asks() -> Any:
    return asks_another.schedule()


@app.actor(worker_timeout=600)
def step(seconds: float, left: int) -> Any:
    threading.Event().wait(seconds)
    return step.schedule(seconds, left - 1) if left else "done"


@app.process(worker_timeout=600)
def steps(seconds: float, count: int) -> Any:
    """One task after the other, which do nothing wrong."""
    return step.schedule(seconds, count - 1)
