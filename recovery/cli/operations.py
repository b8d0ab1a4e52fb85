"""`recovery operation`: work on many processes, planned first, and applied when somebody says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.completion import complete_actor, complete_kind, complete_operation, complete_search
from recovery.cli.options import DURATION, YES, Command, CommandGroup, ReasonOption, duration
from recovery.cli.output import JsonOption, paragraphs

if TYPE_CHECKING:
    from recovery.records import Operation

GROUP = """Check, repair, restart or abort many processes at once: durable, resumable, and on record.

An operation is planned first, which changes nothing; [italic]apply[/italic] runs the very plan that was shown. Workers
do it, and whoever of them is killed, it goes on.

Example: [bold]recovery operation start repair --all --reason "Redis was lost" --watch[/bold]
"""
START = """Order an operation on the processes that a selection matches, in the language of `recovery find`.

KIND is check, repair, restart (what failed in broken processes), restart_from (all of them again, or from the tasks of
an actor on, finished ones included), abort, collect (what is over is removed), or set_idle_timeout (of what was started
already). The plan is made first; nothing is changed until `operation apply`, unless --yes is given.

Example: [bold]recovery operation start restart 'type:order error:TimeoutError' --reason "the bank is back"[/bold]
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
APPLY = """Run the plan of an operation as it was shown. A process that has changed since then is left alone.

Example: [bold]recovery operation apply 12 --reason "looked at the sample" --watch[/bold]
"""
PAUSE = """Let an operation do nothing more until it is resumed.

Example: [bold]recovery operation pause 12 --reason "the bank asks us to"[/bold]
"""
RESUME = """Let a paused operation go on where it was.

Example: [bold]recovery operation resume 12[/bold]
"""
CANCEL = """End an operation for good. What it did stays done.

Example: [bold]recovery operation cancel 12 --reason "a wrong selection"[/bold]
"""
RATE = """Change how many processes a second an operation does in all, however many workers are at it.

Example: [bold]recovery operation rate 12 50[/bold]
"""
REPORT = """Write what an operation found on, and did to, each process: as a table, as JSON, or to a file by its ending.

Example: [bold]recovery operation report 12 --to restarted.csv[/bold]
"""

group = typer.Typer(
    name="operation", cls=CommandGroup, help=paragraphs(GROUP), no_args_is_help=True, rich_markup_mode="rich"
)
Number = Annotated[
    int,
    typer.Argument(metavar="NUMBER", min=1, show_default=False, autocompletion=complete_operation, help="Its number."),
]
Needed = Annotated[str, typer.Option("--reason", help="Why; needed, and kept in the audit log.", show_default=False)]
WatchOption = Annotated[bool, typer.Option("--watch", help="Follow it.")]


@group.command(cls=Command, help=paragraphs(START))
def start(  # noqa: PLR0913
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", show_default=False, autocompletion=complete_kind, help="What is to be done."),
    ],
    selection: Annotated[
        str,
        typer.Argument(
            metavar="SELECTION",
            show_default=False,
            autocompletion=complete_search,
            help="Which processes, as `recovery find` has it.",
        ),
    ] = "",
    all_: Annotated[bool, typer.Option("--all", help="Every process, where there is no selection.")] = False,
    reason: Needed = "",
    yes: Annotated[bool, typer.Option(YES, help="Apply the plan as soon as it is made, unseen.")] = False,
    rate: Annotated[float | None, typer.Option(help="Processes a second in all; default: as fast as it goes.")] = None,
    priority: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=N", help="Types to be done sooner; others have 0.")
    ] = None,
    from_actor: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of a restart_from: from its tasks.", autocompletion=complete_actor),
    ] = None,
    export: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Of a collect: write what is removed there before.")
    ] = None,
    format: Annotated[
        str | None, typer.Option("--format", metavar="jsonl|parquet", help="Of the export; default: jsonl.")
    ] = None,
    idle_timeout: Annotated[
        float | None,
        typer.Option(parser=duration, metavar=DURATION, help="Of a set_idle_timeout: the new one, as in 10m."),
    ] = None,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Of a check or repair: look for damage in what is at rest, too.")
    ] = False,
    spark: Annotated[
        bool | None, typer.Option("--spark/--no-spark", help="In Spark, or not; default: by its size.")
    ] = None,
    parquet: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Of a check or repair in Spark: write what is found there.")
    ] = None,
    watch: WatchOption = False,
    json: JsonOption = False,
) -> None:
    from recovery import operations
    from recovery.cli.output import connect

    asked = operations.Asked(
        kind=kind,
        selection=selection,
        everything=all_,
        apply=yes,
        rate=rate,
        priorities=operations.priorities_of(priority or []),
        from_actor=from_actor,
        export=export,
        export_format=format,
        idle_timeout=idle_timeout,
        thorough=thorough,
        spark=spark,
        parquet=parquet,
    )
    resources = connect()
    _tell("start", operations.start(resources, asked, reason), json, watch)


@group.command("list", cls=Command, help=paragraphs(LIST))
def list_(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 20,
    json: JsonOption = False,
) -> None:
    from recovery.cli.envelope import print_json
    from recovery.cli.operation_view import as_dict, print_all
    from recovery.cli.output import connect, console
    from recovery.operations import progress

    resources = connect()
    read = resources.store.operations.newest_with_damaged(limit)
    found, damaged = [progress(resources, operation) for operation in read.records], [str(one) for one in read.damaged]
    if json:
        print_json("operation list", {"operations": [as_dict(one) for one in found], "damaged": damaged})
    else:
        print_all(console(), found, damaged)


@group.command(cls=Command, help=paragraphs(SHOW))
def show(number: Number, json: JsonOption = False) -> None:
    from recovery import operations
    from recovery.cli.output import connect

    _tell("show", operations.find(connect(), number), json, watch=False)


@group.command(cls=Command, help=paragraphs(WATCH))
def watch(number: Number, json: JsonOption = False) -> None:
    from recovery import operations
    from recovery.cli.output import connect

    _tell("watch", operations.find(connect(), number), json, watch=True)


@group.command(cls=Command, help=paragraphs(APPLY))
def apply(
    number: Number,
    reason: ReasonOption = "",
    yes: Annotated[bool, typer.Option(YES, help="Of a collect: don't ask on a terminal.")] = False,
    watch: WatchOption = False,
    json: JsonOption = False,
) -> None:
    from recovery import operations
    from recovery.cli.output import connect

    resources = connect()
    operation = operations.find(resources, number)
    if operation.kind.value == "collect" and operation.state.value == "planned" and not yes:
        from recovery.cli.operation_view import selection_in_words
        from recovery.cli.removals import agree_to_removal

        found = operation.planned.found if operation.planned is not None else 0
        agree_to_removal(f"{found:,} of the {selection_in_words(operation)}")
    _tell("apply", operations.apply(resources, number, reason), json, watch)


@group.command(cls=Command, help=paragraphs(PAUSE))
def pause(number: Number, reason: ReasonOption = "", json: JsonOption = False) -> None:
    from recovery import operations
    from recovery.cli.output import connect

    paused = operations.pause(connect(), number, reason)
    if paused is None:
        _tell_damaged("pause", number, "paused", json)
    else:
        _tell("pause", paused, json, watch=False)


@group.command(cls=Command, help=paragraphs(RESUME))
def resume(number: Number, reason: ReasonOption = "", watch: WatchOption = False, json: JsonOption = False) -> None:
    from recovery import operations
    from recovery.cli.output import connect

    _tell("resume", operations.resume(connect(), number, reason), json, watch)


@group.command(cls=Command, help=paragraphs(CANCEL))
def cancel(number: Number, reason: Needed = "", json: JsonOption = False) -> None:
    from recovery import operations
    from recovery.cli.output import connect

    cancelled = operations.cancel(connect(), number, reason)
    if cancelled is None:
        _tell_damaged("cancel", number, "cancelled", json)
    else:
        _tell("cancel", cancelled, json, watch=False)


@group.command(cls=Command, help=paragraphs(RATE))
def rate(
    number: Number,
    rate: Annotated[
        str, typer.Argument(metavar="RATE", show_default=False, help="Processes a second, or `unlimited`.")
    ],
    reason: ReasonOption = "",
    json: JsonOption = False,
) -> None:
    from recovery import operations
    from recovery.cli.output import connect

    wanted = operations.rate_of(rate)
    _tell("rate", operations.set_rate(connect(), number, wanted, reason), json, watch=False)


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
    from recovery.cli.operation_report import print_results, write_file
    from recovery.cli.output import connect

    resources = connect()
    operation = operations.find(resources, number)
    states = operations.states_of(state or [])
    if to is not None:
        write_file(resources, operation, states, to, limit)
    else:
        print_results(resources, operation, states, limit, json=json)


def _tell_damaged(how: str, number: int, state: str, json: bool) -> None:
    """Show the new state of an operation whose record can't be read."""
    from recovery.cli.envelope import print_json
    from recovery.cli.output import console

    if json:
        print_json(f"operation {how}", {"number": number, "state": state, "damaged": True})
    else:
        console().print(f"operation {number} is {state}; the rest of its record can't be read")


def _tell(how: str, operation: Operation, json: bool, watch: bool) -> None:
    from recovery.cli.envelope import print_json
    from recovery.cli.operation_view import as_dict, print_one, sample
    from recovery.cli.output import connect, console

    resources = connect()
    if watch:
        from recovery.cli.operation_watch import follow

        operation = follow(resources, operation.id, quiet=json)
    from recovery.operations import progress

    found = progress(resources, operation)
    if json:
        print_json(f"operation {how}", {**as_dict(found), "sample": sample(resources, operation)})
    else:
        print_one(console(), resources, found)


def add_to(commands: typer.Typer) -> None:
    """Register the commands of this module."""
    commands.add_typer(group)
