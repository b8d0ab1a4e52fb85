"""What is run while primaries are lost: each attempt gives another value, so two that are mixed show. The decisive ones
take so long that they end while the secondaries lag behind."""

from __future__ import annotations

import threading
import uuid
from typing import Any

from recovery import Recovery

WORK = 1.0

app = Recovery()


def nonce() -> str:
    """Another one at each attempt, after some work."""
    threading.Event().wait(WORK)
    return uuid.uuid4().hex


@app.actor()
def echo(word: str) -> str:
    return word


@app.process()
def draw() -> str:
    return nonce()


@app.process()
def pair() -> Any:
    word = nonce()
    return [echo.schedule(word), echo.schedule(word)]


@app.process()
def refuse() -> None:
    raise ValueError(nonce())
