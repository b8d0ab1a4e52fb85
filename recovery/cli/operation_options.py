"""What an operation is to do, as commands take it: `operation start`, `operation save` and `schedule operation`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli.command_options import DURATION, duration
from recovery.cli.shell_completion import complete_actor, complete_kind, complete_kind_or_saved, complete_search

if TYPE_CHECKING:
    from recovery.operations import OperationRequest

Kind = Annotated[
    str, typer.Argument(metavar="KIND", show_default=False, autocompletion=complete_kind, help="What is to be done.")
]
KindOrSaved = Annotated[
    str,
    typer.Argument(
        metavar="KIND|@NAME",
        show_default=False,
        autocompletion=complete_kind_or_saved,
        help="What is to be done, or a saved operation.",
    ),
]
Selection = Annotated[
    str,
    typer.Argument(
        metavar="SELECTION",
        show_default=False,
        autocompletion=complete_search,
        help="Which processes, as `recovery find` has it.",
    ),
]
All = Annotated[bool, typer.Option("--all", help="Every process, where there is no selection.")]
Rate = Annotated[
    float | None,
    typer.Option(help="Processes a second in all that are changed, or checked; default: as fast as it goes."),
]
Priority = Annotated[list[str] | None, typer.Option(metavar="TYPE=N", help="Types to be done sooner; others have 0.")]
FromActor = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Of a restart_from: from its tasks.", autocompletion=complete_actor),
]
Export = Annotated[str | None, typer.Option(metavar="FOLDER", help="Of a collect: write what is removed there before.")]
Format = Annotated[str | None, typer.Option("--format", metavar="jsonl|parquet", help="Of the export; default: jsonl.")]
IdleTimeout = Annotated[
    float | None,
    typer.Option(parser=duration, metavar=DURATION, help="Of a set_idle_timeout: the new one, as in 10m."),
]
Thorough = Annotated[
    bool, typer.Option("--thorough", help="Of a check or repair: look for damage in what is at rest, too.")
]
Spark = Annotated[bool | None, typer.Option("--spark/--no-spark", help="In Spark, or not; default: by its size.")]
Parquet = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Of a check or repair in Spark: write what is found there.")
]


def request(kind: str, selection: str, all_: bool, priority: list[str] | None, **options: Any) -> OperationRequest:
    """Return what a command asks for; the other options under their names in OperationRequest."""
    from recovery.operations import OperationRequest, priorities_of

    priorities = priorities_of(priority or [])
    return OperationRequest(kind=kind, selection=selection, everything=all_, priorities=priorities, **options)
