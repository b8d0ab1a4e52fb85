"""Which interrupted tasks a command of `recovery broken` is about: those of a process, one of them, or a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.shell_completion import complete_actor, complete_process, complete_type

if TYPE_CHECKING:
    from rich.console import Console

    from recovery.engine import Resources
    from recovery.store import Selection

_TARGET = typer.Argument(
    metavar="PROCESS_ID[/TASK]",
    help="A process's id or custom id, or that and a task's id.",
    show_default=False,
    autocompletion=complete_process,
)
Target = Annotated[str, _TARGET]
GivenTarget = Annotated[str | None, _TARGET]
TypeOption = Annotated[
    str | None, typer.Option("--type", help="Only of processes of this type.", autocompletion=complete_type)
]
ActorOption = Annotated[
    str | None, typer.Option("--actor", help="Only tasks of this actor.", autocompletion=complete_actor)
]
KindOption = Annotated[str | None, typer.Option("--kind", help="Only with this kind of error.")]
FingerprintOption = Annotated[str | None, typer.Option("--fingerprint", help="Only with this fingerprint.")]


def selection_of(process_type: str | None, actor: str | None, kind: str | None, fingerprint: str | None) -> Selection:
    """The group that options name; all, if none does. Raises InputError."""
    from recovery.records import given
    from recovery.store import Selection

    names = {"type": process_type, "actor": actor, "kind": kind, "fingerprint": fingerprint}
    return Selection(**{key: given.text(name, f"--{key}") for key, name in names.items() if name is not None})


def check_target(target: str | None, selection: Selection, limit: int | None) -> None:
    """Raise InputError unless either one process or task is named, or a group."""
    from recovery.errors import InputError

    options = "--type, --actor, --kind or --fingerprint"
    if target is None and not selection.filter():
        raise InputError(f"nothing is named: give a process id, or a group by {options} (`recovery broken list`)")
    if target is not None and (selection.filter() or limit is not None):
        raise InputError(f"{target} and a group are named: give either a process id, or {options} with --limit")


def print_plan(out: Console, resources: Resources, selection: Selection, what: str) -> None:
    """Show a group, and what would be done to it."""
    from recovery.cli.interrupted import print_groups, print_none

    groups = resources.store.interruptions.groups(selection)
    if not groups:
        print_none(out, resources.store.interruptions, selection)
        return
    print_groups(out, groups)
    out.print(f"would {what}; add --yes to do it")


def print_if_none(out: Console, resources: Resources, selection: Selection, done: int) -> None:
    """Where nothing was done since nothing is selected: what may have been meant."""
    from recovery.cli.interrupted import print_none

    if not done and not resources.store.interruptions.count(selection):
        print_none(out, resources.store.interruptions, selection)


def at_most(limit: int | None, number: int) -> int:
    """A number, or the limit that was given."""
    return number if limit is None else min(number, limit)
