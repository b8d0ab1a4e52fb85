"""What is run while primaries are lost: each attempt gives another value, so two that are mixed show. The decisive ones
end when the test lets them, while the secondaries lag behind."""

from __future__ import annotations

import math
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from recovery import Recovery

OPEN = "open"
GIVES_WAY = 10.0
"""Seconds that a second attempt keeps its slot for: first ones may wait for it."""

app = Recovery()


class Gate:
    """Where attempts wait, in any process, until a test opens it."""

    def __init__(self, folder: str, number: int) -> None:
        """Of those in a folder the one of this number: whoever names both is at the same gate."""
        self.folder, self.number = folder, number
        self._place = Path(folder) / str(number)
        self._place.mkdir(exist_ok=True)

    def arrived(self) -> set[str]:
        """The kinds of which an attempt has come; for a gate that is closed."""
        return {path.name for path in self._place.iterdir()}

    def arrive(self, kind: str) -> None:
        """An attempt of this kind has come."""
        (self._place / kind).touch()

    def open(self) -> None:
        """Let all pass, from now on."""
        self.arrive(OPEN)

    def is_open(self) -> bool:
        """Whether all may pass."""
        return (self._place / OPEN).exists()

    def wait(self, seconds: float = math.inf) -> None:
        """Wait until it is open, for so long at the most."""
        until, pause = time.monotonic() + seconds, threading.Event()
        while not self.is_open() and time.monotonic() < until:
            pause.wait(0.01)


def pass_gates(kind: str, folder: str, number: int) -> None:
    """The first attempt waits at the gate of this number. Its end is taken back: the next attempt waits at the next
    gate, so that its end is as well, if it may be. Those after it wait for nothing."""
    own = Gate(folder, number)
    if own.is_open():
        Gate(folder, number + 1).wait(GIVES_WAY)
    else:
        own.arrive(kind)
        own.wait()


@app.actor()
def echo(word: str) -> str:
    return word


@app.process()
def draw(folder: str, number: int) -> str:
    pass_gates("draw", folder, number)
    return uuid.uuid4().hex


@app.process()
def pair(folder: str, number: int) -> Any:
    pass_gates("pair", folder, number)
    word = uuid.uuid4().hex
    return [echo.schedule(word), echo.schedule(word)]


@app.process()
def refuse(folder: str, number: int) -> None:
    pass_gates("refuse", folder, number)
    raise ValueError(uuid.uuid4().hex)
