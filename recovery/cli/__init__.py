"""The command `recovery`. One module per group of commands; each imports what it needs when it is run, so that
`recovery --help` does not wait for drivers.

`main` is the only place that catches: an error of ours is one message on stderr and its exit code, no traceback.
"""

from recovery.cli.main import main

__all__ = ["main"]
