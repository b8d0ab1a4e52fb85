"""The command `recovery`. One module per group of commands; each imports what it needs when it is run, so that no
command waits for drivers that it does not use.

`entry` is where it starts. `main` is the only place that catches: an error of ours is one message on stderr and its
exit code, no traceback. A module with commands is named `…_commands`: its `commands` are a group, or commands of
`recovery` itself, and `on_demand` lists them. What commands share has modules of its own, which `main` imports as well,
so that they cost no command anything: `command_options`, `connection`, `output`, `interrupts` and `shell_completion`.
All else that is not needed to read the command line is imported in the function that uses it. Where a group is too
large for one module, others have how it shows what it finds.
"""

from __future__ import annotations


def __getattr__(name: str) -> object:
    """Return `main`, by which a script that was installed by an earlier version starts the command."""
    if name == "main":
        from recovery.cli.entry import main

        return main
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
