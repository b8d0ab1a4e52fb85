"""The start of the command `recovery`, before anything else is imported."""

from __future__ import annotations

import gc
import os
import signal

INTERRUPTED = 130
"""Exit code of a command that was ended by Ctrl-C: 128 and the number of SIGINT, as shells have it."""

_COLLECT_AFTER = 200_000
"""New objects between two collections of garbage. By Python's own 700 the imports alone cause 300 of them, which take a
fifth of a short command's time and find nothing. A worker sets its own."""


def main() -> None:
    """Run the command of the command line.

    A Ctrl-C while the command is imported, or after it has ended, ends the process at once: nothing was begun, or
    everything is done. In between it is a KeyboardInterrupt, so that what was started is stopped in order.
    """
    end_at_once()
    gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])
    try:
        from recovery.cli.main import main as run

        run()
    finally:
        # The interpreter looks for garbage several times while it ends: a fifth of a short command's time. Frozen
        # objects are not looked at; files are closed and flushed all the same, since that is not garbage's work.
        gc.freeze()


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
