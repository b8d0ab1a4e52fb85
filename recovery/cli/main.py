"""The entry: all commands, and what becomes of errors."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from recovery.cli import (
    actors,
    broken,
    check,
    demo,
    doctor,
    process_types,
    processes,
    run,
    servers,
    status,
    sweep,
    workers,
)
from recovery.cli.output import fail
from recovery.errors import ProcessBroken, RecoveryError, ResultTimeout

BAD, ERROR, NOT_ENDED = 1, 2, 3
"""Exit codes of all commands: a bad result, as of a process that broke; an error that is told in one message, as for a
wrong option or a server that does not answer; not ended within the time given, ask again."""

app = typer.Typer(
    name="recovery",
    help="Long-running processes on Celery workers that always end, whatever is killed.",
    epilog="Every command ends with 0 if all is well, 1 for a bad result (a process that broke, a finding, a problem), "
    "2 for an error: a wrong option, setting or id, or a server that does not answer; 3 if what was waited for has "
    "not ended yet. Settings come from RECOVERY_* variables or the TOML file that RECOVERY_CONFIG names. "
    "Begin with: recovery demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"recovery-workers {version('recovery-workers')}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """What goes before a command. Only the help of the app itself is shown, not this."""


for commands in (demo, servers, workers, processes, run, status, actors, process_types, doctor, check, broken, sweep):
    commands.add_to(app)


def main() -> None:
    """Run the command of the command line."""
    try:
        app()
    except RecoveryError as error:
        fail(told(error), getattr(error, "__notes__", ()))
        sys.exit(exit_code(error))
    except Exception as error:
        if not _is_servers(error):
            raise
        fail(f"a server did not answer: {type(error).__name__}: {str(error)[:500]}", getattr(error, "__notes__", ()))
        sys.exit(ERROR)


def told(error: RecoveryError) -> str:
    """The message of an error, as the command line says it."""
    if not isinstance(error, ProcessBroken):
        return str(error)
    from recovery.cli.interrupted import without_rule

    return str(ProcessBroken(error.process_id, error.task, error.kind, without_rule(error.message), error.state))


def exit_code(error: RecoveryError) -> int:
    """What a command ends with that raised this."""
    if isinstance(error, ProcessBroken):
        return BAD
    return NOT_ENDED if isinstance(error, ResultTimeout) else ERROR


def _is_servers(error: Exception) -> bool:
    """Whether a driver raised it. By name: importing the drivers for this would cost every command."""
    return type(error).__module__.partition(".")[0] in ("pymongo", "redis")
