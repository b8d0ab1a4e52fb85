"""Ctrl-C and SIGTERM, as one exception: a demo takes down what it started before it ends."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


class Stopped(KeyboardInterrupt):
    """SIGINT or SIGTERM came."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """SIGINT and SIGTERM raise Stopped once, so that what was started is stopped in order."""

    def stop(number: int, _frame: object) -> None:
        for ignored in before:
            signal.signal(ignored, signal.SIG_IGN)
        raise Stopped(number)

    # Set also where a shell that runs us in the background had SIGINT ignored.
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
