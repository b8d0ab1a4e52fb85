"""`recovery operation`: work on many processes, planned first, and applied when somebody says so.

This module lists and shows operations; `operation_changes` orders and changes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recovery.cli import operation_changes
from recovery.cli.command_options import Command, CommandGroup, JsonOption, paragraphs
from recovery.cli.operation_changes import Number
from recovery.cli.operation_view import print_whole

GROUP = """Check, repair, restart or abort many processes at once: durable, resumable, and on record.

An operation is planned first, which changes nothing; [italic]apply[/italic] runs the very plan that was shown. Workers
do it, and whoever of them is killed, it goes on.

Example: [bold]recovery operation start repair --all --reason "Redis was lost" --watch[/bold]
"""
LIST = """List operations, the newest first.

Example: [bold]recovery operation list --limit 5[/bold]
"""
SHOW = """Show an operation: what it is to do, how far it is, what came of it, and a sample of its processes.

Example: [bold]recovery operation show 12[/bold]
"""
WATCH = """Follow an operation until it is planned, finished, cancelled or paused, with its speed and what is found.

Example: [bold]recovery operation watch 12[/bold]
"""
REPORT = """Write what an operation found on, and did to, each process: as a table, as JSON, or to a file by its ending.

Example: [bold]recovery operation report 12 --to restarted.csv[/bold]
"""

group = typer.Typer(
    name="operation", cls=CommandGroup, help=paragraphs(GROUP), no_args_is_help=True, rich_markup_mode="rich"
)


@group.command("list", cls=Command, help=paragraphs(LIST))
def list_(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 20,
    json: JsonOption = False,
) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.operation_texts import as_dict
    from recovery.cli.operation_view import print_all
    from recovery.cli.output import console, print_json
    from recovery.operations import progress

    resources = connect(needs_redis=False)
    read = resources.store.operations.newest_with_damaged(limit)
    found, damaged = [progress(resources, operation) for operation in read.records], [str(one) for one in read.damaged]
    if json:
        print_json("operation list", {"operations": [as_dict(one) for one in found], "damaged": damaged})
    else:
        print_all(console(), found, damaged)


@group.command(cls=Command, help=paragraphs(SHOW))
def show(number: Number, json: JsonOption = False) -> None:
    from recovery import operations
    from recovery.cli.connection import connect

    resources = connect(needs_redis=False)
    print_whole(resources, "show", operations.find(resources, number), json=json)


@group.command(cls=Command, help=paragraphs(WATCH))
def watch(number: Number, json: JsonOption = False) -> None:
    from recovery import operations
    from recovery.cli.connection import connect

    resources = connect(needs_redis=False)
    print_whole(resources, "watch", operations.find(resources, number), json=json, watch=True)


@group.command(cls=Command, help=paragraphs(REPORT))
def report(
    number: Number,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="A file: .csv, .json (lines), or .parquet.")
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option(help="Only results in this state: found, done, nothing, changed, error.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The most to list; default: all, as a table 100.")] = None,
    json: JsonOption = False,
) -> None:
    from recovery import operations
    from recovery.cli.connection import connect
    from recovery.cli.operation_report import print_results, write_file

    resources = connect(needs_redis=False)
    operation = operations.find(resources, number)
    states = operations.states_of(state or [])
    if to is not None:
        write_file(resources, operation, states, to, limit)
    else:
        print_results(resources, operation, states, limit, json=json)


def add_to(commands: typer.Typer) -> None:
    """Register the commands of this module, and those that change something."""
    operation_changes.add_to(group)
    commands.add_typer(group)
