"""`recovery sweep`."""

from __future__ import annotations

from typing import Annotated

import typer

from recovery.cli.output import JsonOption, paragraphs

HELP = """Check every process with Spark, whether its deadline is past or not; repair what is wrong if told to.

Needs pip install 'recovery-workers\\[spark]' and Java. Without --repair nothing is changed.

Example: [bold]recovery sweep --type order --repair[/bold]
"""


def sweep(
    process_type: Annotated[str | None, typer.Option("--type", help="Only processes of this type.")] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what is found.")] = False,
    json: JsonOption = False,
) -> None:
    import json as json_module

    from rich.table import Table

    from recovery.cli.output import connect, console
    from recovery.settings import load

    settings = load()
    connect(settings)
    from recovery.sweep import sweep as run_sweep

    found = run_sweep(settings, repair=repair, process_type=process_type).summary()
    if json:
        print(json_module.dumps(found))
        return
    table = Table(box=None, show_header=False, padding=(0, 2))
    for name, value in found.items():
        table.add_row(str(name).replace("_", " "), _text(value))
    console().print(table)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key}: {item}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "\n".join(str(item) for item in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "all"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command(help=paragraphs(HELP))(sweep)
