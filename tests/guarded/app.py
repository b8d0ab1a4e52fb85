"""What runs on guarded servers."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

from recovery import Promise, Recovery

app = Recovery()


@app.actor()
def double(number: int) -> int:
    return 2 * number


@app.actor(retry=None)
def refuse(reason: str) -> None:
    raise ValueError(reason)


@app.actor(retry=None)
def blab() -> None:
    """What no application should do: it logs the address of a server, and another stands in its error."""
    logging.getLogger(__name__).warning("connected to %s", os.environ["RECOVERY_BROKER_URL"])
    raise ValueError(os.environ["RECOVERY_MONGO_URI"])


@app.actor()
def crash(once: str) -> str:
    """Takes its pool process with it, the first time."""
    if not Path(once).exists():
        Path(once).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "went on"


@app.process()
def twice(number: int) -> Promise:
    return double.schedule(double.schedule(number))


@app.process()
def broken(reason: str) -> Promise:
    return refuse.schedule(reason)


@app.process()
def blabbing() -> Promise:
    return blab.schedule()


@app.process()
def crashing(once: str) -> Promise:
    return crash.schedule(once)
