"""The exit codes of commands, and how they take options.

Durations, flags without a type in the help, `--wait` with and without a duration, and `--yes`, the one flag that
confirms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from recovery.cli.shell_completion import complete_process, complete_type
from recovery.errors import InputError
from recovery.wording import parse_duration, show_duration

BAD, ERROR, NOT_ENDED = 1, 2, 3
"""Exit codes of all commands: a bad result, such as a process that broke; an error with one message, such as a wrong
option or a server that does not answer; not ended within the time given, so ask again."""

DURATION = "DURATION"
"""What help texts call one."""
WAIT, WAIT_DEFAULT = "--wait", 3600.0
"""Seconds of --wait alone."""

YES = "--yes"
NOT_YES = frozenset({"--apply", "--force", "--confirm", "-y"})
"""Other programs, and earlier versions of some commands, call --yes so. The error that refuses one names --yes."""
YesOption = Annotated[bool, typer.Option(YES, help="Do it. Without --yes the command only shows what it would do.")]

AppOption = Annotated[
    str | None,
    typer.Option(
        "--app", "-A", help="Your Recovery object, package.module:name; default: RECOVERY_APP.", metavar="APP"
    ),
]
ProcessId = Annotated[
    str, typer.Argument(metavar="PROCESS_ID", help="Its id or custom id.", autocompletion=complete_process)
]
OfTypeOption = Annotated[
    str | None, typer.Option("--type", help="Only of this process type.", autocompletion=complete_type)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs (docs/commands.md).")]

ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept in the audit log.", show_default=False)]
"""Of a command that needs none."""


def paragraphs(text: str) -> str:
    """Return a command's help as Typer wants it: with line breaks only between paragraphs."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def duration(text: str | float) -> float:
    """Return the seconds of an option's duration, or of its default."""
    if not isinstance(text, str):
        return text
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


class Command(TyperCommand):
    """A command as all of ours are."""

    def get_params(self, ctx: Any) -> Any:
        """All options; what takes no value shows none."""
        return _prepared(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """With what --wait alone means. Raises InputError for --yes under another name."""
        options = {option for param in self.params for option in param.opts}
        if WAIT in options:
            args = _with_wait(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # By what it has: the class of Typer's error for an unknown option is another one in each version.
            name = getattr(error, "option_name", None)
            if YES in options and name in NOT_YES:
                raise InputError(f"{name}: {ctx.command_path} has no such option; {YES} confirms") from None
            raise


class CommandGroup(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> Any:
        """The same of the group's own options."""
        return _prepared(super().get_params(ctx))


class Commands(typer.Typer):
    """The commands of a module: a group, if it has a name. Without a name each is a command of `recovery` itself."""

    def __init__(self, name: str | None = None, help: str = "") -> None:
        super().__init__(
            name=name, cls=CommandGroup, help=paragraphs(help), no_args_is_help=True, rich_markup_mode="rich"
        )

    def add(self, help: str, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Return a decorator that adds a function as a command with this help, under its own name by default."""
        return self.command(name, cls=Command, help=paragraphs(help))


_CONVERTERS = ("parser", "click_type")
"""Names of what an option converts its values by, in Typer's versions."""


class _Quick:
    """Takes the values of an option that Typer would hand on as they are, and has Typer convert all others. Typer would
    import pydantic for either, which takes a fifth of a short command's time."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        return value if _is_plain(value, param) else self._build().coerce(value, param=param, ctx=ctx)


def _is_plain(value: Any, param: Any) -> bool:
    """Return whether the value of an option needs no conversion and no check."""
    if param.multiple or param.nargs != 1:
        return False
    if value is None:
        return True
    kind, options = param.type_descriptor.annotation, param.type_descriptor.parameter_info
    if type(value) is not kind or any(getattr(options, name, None) is not None for name in _CONVERTERS):
        return False
    return kind is str or (kind in (int, float) and value == param.default)


def _prepared(params: Any) -> Any:
    for param in params:
        # Typer's earlier versions convert in another way.
        if hasattr(param, "get_runtime_param") and not isinstance(param.get_runtime_param, partial):
            param.get_runtime_param = partial(_Quick, param.get_runtime_param)
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


def _with_wait(args: list[str]) -> list[str]:
    """Return the arguments, with the default duration after each --wait that no duration follows. A duration begins
    with a digit."""
    found: list[str] = []
    for place, argument in enumerate(args):
        if argument == "--":
            return found + args[place:]
        after = args[place + 1] if place + 1 < len(args) else ""
        takes_default = argument == WAIT and not after[:1].isdigit()
        found.append(f"{WAIT}={show_duration(WAIT_DEFAULT)}" if takes_default else argument)
    return found


def agree_to_removal(words: str, when: str = "") -> None:
    """Ask on a terminal whether these processes are to be removed. Without a terminal nobody can be asked, and the
    command goes on. Commands do not call this if --yes is given. Raises InputError if the answer is no."""
    if not sys.stdin.isatty():
        return
    if not typer.confirm(f"This removes {words}, if they are over{when}. Go on?", err=True):
        raise InputError("the removal was not agreed to; nothing was done")
