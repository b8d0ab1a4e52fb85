"""The start of the command `recovery`, before anything else is imported."""

from __future__ import annotations

import gc

from recovery.cli.interrupts import end_at_once

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
