"""What Ctrl-C and SIGTERM do to a command: before it begins, while it waits, and while it has to stop what it started.

Imports nothing that takes time, because `entry` uses it before all else.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

SIGNALLED = 128
"""A command that a signal ended has this and the number of the signal as its exit code, as shells have it."""
INTERRUPTED = SIGNALLED + signal.SIGINT
"""Exit code of a command that was ended by Ctrl-C."""


def end_at_once() -> None:
    """End this process without a traceback if Ctrl-C is pressed from here on, unless a command handles that itself."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_interrupts() -> None:
    """Have Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: object) -> None:
    os._exit(INTERRUPTED)


class Stopped(KeyboardInterrupt):
    """SIGINT or SIGTERM came."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = SIGNALLED + number


@contextlib.contextmanager
def stop_in_order() -> Iterator[None]:
    """Have the first SIGINT or SIGTERM raise Stopped, so that what was started is stopped in order. Later ones are
    ignored."""

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


def process_goes_on(process_id: str) -> typer.Exit:
    """Return what to raise when Ctrl-C ends the waiting for a process, after a message that the process goes on."""
    return _no_longer_waiting(f"process {process_id} goes on; `recovery show {process_id}` tells how far it is")


def processes_go_on(processes: str) -> typer.Exit:
    """Return the same for several processes, given in words such as `3 processes`."""
    return _no_longer_waiting(f"{processes} started, which go on; `recovery show` tells how far one is")


def _no_longer_waiting(what_goes_on: str) -> typer.Exit:
    import typer

    from recovery.cli.output import messages

    messages().print(f"no longer waiting: {what_goes_on}", style="yellow")
    return typer.Exit(INTERRUPTED)
