"""Attempts of the demo's actors that fail for what passes by itself: a part of them, by the demo's seed.

Told by the environment, so that every process of a worker fails alike: WORKFLOW_FAIL is the part, from 0 to 1, and
WORKFLOW_SEED the seed. Which attempt of which task fails, and how, is by both alone; that it fails before it has done
anything or after it has written its line is as good as chance, too.
"""

from __future__ import annotations

import errno
import os
from random import Random

PART, SEED = "WORKFLOW_FAIL", "WORKFLOW_SEED"
_ERRORS = (
    ConnectionRefusedError(errno.ECONNREFUSED, "the demo's host is away"),
    ConnectionResetError(errno.ECONNRESET, "the demo's host closed the connection"),
    TimeoutError(errno.ETIMEDOUT, "the demo's host gave no answer"),
    BlockingIOError(errno.EAGAIN, "the demo's machine has no room"),
)


class Failure:
    """What befalls one attempt: nothing, mostly; or an error, before or after its work."""

    def __init__(self, task: str, attempt: int) -> None:
        chance = Random(f"{os.environ.get(SEED, '')}/{task}/{attempt}")
        fails = chance.random() < float(os.environ.get(PART) or 0)
        self._before = chance.random() < 0.5
        self._error = chance.choice(_ERRORS) if fails else None

    def before(self) -> None:
        """Fail, if it is to fail before its work."""
        if self._error is not None and self._before:
            raise self._error

    def after(self) -> None:
        """Fail, if it is to fail when the work is done: its line is there, and its value will never be."""
        if self._error is not None:
            raise self._error


def environment(part: float, seed: int) -> dict[str, str]:
    """What tells workers."""
    return {PART: f"{part:g}", SEED: str(seed)} if part else {}
