"""The entry: all commands, and what becomes of errors."""

from __future__ import annotations

import _thread
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, TextIO

import typer

from recovery import addresses
from recovery.cli import connection
from recovery.cli.command_options import BAD, ERROR, NOT_ENDED
from recovery.cli.interrupts import INTERRUPTED, end_at_once, raise_interrupts
from recovery.cli.on_demand import RootGroup
from recovery.cli.output import fail
from recovery.cli.shell_completion import bash_words
from recovery.errors import (
    BrokerError,
    InputError,
    ProcessBroken,
    RecoveryError,
    ResultTimeout,
    SettingsError,
    StoreDenied,
    StoreError,
    StoreUnavailable,
)
from recovery.log_lines import log_json, log_printable
from recovery.setting_forms import LogFormat
from recovery.settings import load

Code = str | int | None
"""What `sys.exit` takes."""

app = typer.Typer(
    name="recovery",
    cls=RootGroup,
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


def main() -> None:
    """Run the command of the command line."""
    log_printable()
    _log_as_set()
    if not {"-h", "--help", "--version"}.intersection(sys.argv):  # which count nothing, and import little
        connection.count_in_memory()
    sys.unraisablehook = _unless_half_made
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a letter that a terminal's encoding has not is no traceback
            stream.reconfigure(errors="backslashreplace")
    try:
        raise_interrupts()
        with bash_words():
            code: Code = execute(sys.argv[1:])
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = INTERRUPTED
    end_at_once()
    sys.exit(_written(code))


def _log_as_set() -> None:
    """Log warnings as JSON on stderr if the settings say so. Wrong settings are reported by the command that needs
    them."""
    with suppress(SettingsError):
        if load().log_format is LogFormat.JSON:
            log_json()


def _unless_half_made(unraisable: sys.UnraisableHookArgs) -> None:
    """Show what could not be raised, except what a half-made object raises when it is removed: a Ctrl-C may strike
    while the driver makes one, and its `__del__` misses what was still to come. A Ctrl-C that struck where nothing can
    be raised, as in a callback of an import, is raised in the main thread instead."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        # By another thread, which runs once this hook has returned: in here nothing can be raised either.
        _thread.start_new_thread(os.kill, (os.getpid(), signal.SIGINT))
        return
    name = getattr(unraisable.object, "__qualname__", "")
    if not (isinstance(unraisable.exc_value, AttributeError) and str(name).endswith(".__del__")):
        sys.__unraisablehook__(unraisable)


def _written(code: Code) -> Code:
    """Return the exit code, once all output is written. It is ERROR if the output cannot be written, as on a full
    disk."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except BrokenPipeError:  # nobody reads any more, as of `| head`
            _discard(sys.stdout)
        except OSError as error:
            _discard(sys.stdout)
            if code != ERROR:  # else it was told
                fail(_of_machine(error) or str(error))
            code = ERROR
    if sys.stderr is not None:
        try:
            sys.stderr.flush()
        except OSError:  # who can't be told learns by the exit code
            _discard(sys.stderr)
    return code


def _discard(stream: TextIO) -> None:
    """Have what a stream still holds go nowhere: else Python tries again at its end, and ends with a code of its
    own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def execute(arguments: Sequence[str]) -> int:
    """Run a command; its exit code."""
    try:
        for place, argument in enumerate(arguments, start=1):
            _check_argument(place, argument)
        return int(app(list(arguments), prog_name="recovery", standalone_mode=False) or 0)
    except RecoveryError as error:
        fail(error_message(error), getattr(error, "__notes__", ()))
        return exit_code(error)
    except Exception as error:
        said = next((found for of in (_of_typer, _of_driver, _of_machine) if (found := of(error)) is not None), None)
        if said is None:
            raise
        if said:
            fail(said, getattr(error, "__notes__", ()))
        return ERROR
    finally:
        connection.leave()


def _check_argument(place: int, argument: str) -> None:
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise InputError(f"argument {place}, {argument!r}: is not UTF-8, as ids, names and paths are") from None


def _of_typer(error: Exception) -> str | None:
    """What Typer says of a command line that it can't use, nothing if it has shown its help; None for another's error.

    By what it has: its classes are Click's in one version and its own in another.
    """
    message, context = getattr(error, "format_message", None), getattr(error, "ctx", None)
    if message is None:
        return None
    path, said = getattr(context, "command_path", "recovery"), message().rstrip(".?")
    return f"{said}. `{path} --help` tells what there is" if said else ""


def _of_driver(error: Exception) -> str | None:
    """Return the message for a driver's error, as `recovery up` may meet it. Return None for another error.

    Drivers are told by name, because their import would cost every command.
    """
    if type(error).__module__.partition(".")[0] not in ("pymongo", "redis"):
        return None
    return f"a server did not answer: {type(error).__name__}: {_shown(error)}"


def _shown(error: Exception) -> str:
    """Return what may be shown of a driver's text."""
    settings = load()
    return addresses.told(error, settings.mongo_uri, settings.broker_url)[:500]


def _of_machine(error: Exception) -> str | None:
    """Return the message for an error of this machine, such as a full disk. Return None for another error."""
    if not isinstance(error, OSError) or not error.strerror:
        return None
    return f"{f'{error.filename}: ' if error.filename else 'what was to be written or read: '}{error.strerror}"


def error_message(error: RecoveryError) -> str:
    """Return the message of an error, as the command line words it."""
    if isinstance(error, StoreDenied):
        return f"{error}; `recovery doctor` tells what it may do"
    if isinstance(error, StoreUnavailable | BrokerError):
        return f"a server did not answer: {_shown(error)}"
    if isinstance(error, StoreError):
        return f"MongoDB refuses: {_shown(error)}"
    if not isinstance(error, ProcessBroken):
        return str(error)
    from recovery.cli.interrupted import without_rule

    return str(ProcessBroken(error.process_id, error.task, error.kind, without_rule(error.message), error.state))


def exit_code(error: RecoveryError) -> int:
    """Return the exit code of a command that raised this error."""
    if isinstance(error, ProcessBroken):
        return BAD
    return NOT_ENDED if isinstance(error, ResultTimeout) else ERROR
