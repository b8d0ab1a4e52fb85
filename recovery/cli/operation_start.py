"""`recovery operation start`: an operation ordered."""

from __future__ import annotations

from typing import Annotated

import typer

from recovery.cli.command_options import DURATION, YES, Command, JsonOption, duration, paragraphs
from recovery.cli.operation_options import NeededReason, WatchOption, print_whole
from recovery.cli.shell_completion import complete_actor, complete_kind, complete_search

START = """Order an operation on the processes that a selection matches, in the language of `recovery find`.

KIND is check, repair, restart (what failed in broken processes), restart_from (all of them again, or from the tasks of
an actor on, finished ones included), abort, collect (what is over is removed), or set_idle_timeout (of what was started
already). The plan is made first; nothing is changed until `operation apply`, unless --yes is given.

Example: [bold]recovery operation start restart 'type:order error:TimeoutError' --reason "the bank is back"[/bold]
"""


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
    reason: NeededReason = "",
    yes: Annotated[bool, typer.Option(YES, help="Apply the plan as soon as it is made, unseen.")] = False,
    rate: Annotated[
        float | None,
        typer.Option(help="Processes a second in all that are changed, or checked; default: as fast as it goes."),
    ] = None,
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
    from recovery.cli.connection import connect

    asked = operations.OperationRequest(
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
    print_whole(resources, "start", operations.start(resources, asked, reason), json=json, watch=watch)


def add_to(group: typer.Typer) -> None:
    """Register the command of this module."""
    group.command(cls=Command, help=paragraphs(START))(start)
