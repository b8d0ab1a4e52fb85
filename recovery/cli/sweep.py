"""`recovery sweep`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.completion import complete_type
from recovery.cli.options import Command
from recovery.cli.output import JsonOption, paragraphs

if TYPE_CHECKING:
    from recovery.engine import Resources

HELP = """Check every process with Spark, whether its deadline is past or not; repair what is wrong if told to.

Needs pip install 'recovery-workers\\[spark]' and Java. Without --repair nothing is changed. Ends with 0 whatever is
found, 2 if there is no process of the type.

Example: [bold]recovery sweep --type order --repair[/bold]
"""


def sweep(
    process_type: Annotated[
        str | None, typer.Option("--type", help="Only processes of this type.", autocompletion=complete_type)
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what is found.")] = False,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Look for damage in what is at rest, too: takes three times as long.")
    ] = False,
    json: JsonOption = False,
) -> None:
    from rich.text import Text

    from recovery.cli.envelope import print_json
    from recovery.cli.output import connect, console
    from recovery.cli.tables import Labelled
    from recovery.settings import load

    settings = load()
    resources = connect(settings)
    from recovery.sweep import sweep as run_sweep

    found = run_sweep(settings, repair=repair, process_type=process_type, thorough=thorough).summary()
    if process_type is not None and not found["processes"]:
        check_type(resources, process_type)
    if json:
        print_json("sweep", found)
        return
    rows = [(str(name).replace("_", " "), Text(text(value))) for name, value in found.items()]
    console().print(Labelled(rows, max(len(label) for label, _ in rows) + 2))


def check_type(resources: Resources, process_type: str) -> None:
    """Raise UnknownProcessType for a type of which no process was seen, unless a worker has told of it."""
    from recovery.engine.naming import hint
    from recovery.errors import UnknownProcessType

    known = sorted(resources.store.process_types.stored())
    if process_type not in known:
        there = hint(process_type, known, "no worker has told of any type")
        raise UnknownProcessType(f"no process of type {process_type!r} was seen; {there}")


def text(value: object) -> str:
    """A figure of the summary, for people."""
    if isinstance(value, dict):
        return "\n".join(f"{key}: {item}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "\n".join(f"{one['rule']}  {one['record']}  {one['evidence']}" for one in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "all"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command(cls=Command, help=paragraphs(HELP))(sweep)
