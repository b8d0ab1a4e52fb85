"""An application whose actors do what none should. Served by the workers of the tests that tell what comes of it."""

from __future__ import annotations

import asyncio
import os
import sys
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
