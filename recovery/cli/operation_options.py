"""Arguments and options that the commands of `recovery operation` share, and how they print an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.shell_completion import complete_operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.engine import Resources
    from recovery.operations import Progress
    from recovery.records import Operation

Number = Annotated[
    int,
    typer.Argument(metavar="NUMBER", min=1, show_default=False, autocompletion=complete_operation, help="Its number."),
]
NeededReason = Annotated[
    str, typer.Option("--reason", help="Why; needed, and kept in the audit log.", show_default=False)
]
WatchOption = Annotated[bool, typer.Option("--watch", help="Follow it.")]


def print_whole(resources: Resources, command: str, operation: Operation, *, json: bool, watch: bool = False) -> None:
    """Print all of an operation and a sample of its processes; with `watch`, follow it first."""
    from recovery.cli.operation_view import print_one
    from recovery.cli.output import console

    print_followed(
        resources, command, operation, lambda found: print_one(console(), resources, found), json=json, watch=watch
    )


def print_followed(
    resources: Resources,
    command: str,
    operation: Operation,
    show: Callable[[Progress], None],
    *,
    json: bool,
    watch: bool,
) -> None:
    """Print an operation by `show`, or as JSON with a sample of its processes; with `watch`, follow it first."""
    from recovery.cli.operation_json import as_dict, sample
    from recovery.cli.output import print_json
    from recovery.operations import progress

    if watch:
        from recovery.cli.operation_watch import follow

        operation = follow(resources, operation.id, quiet=json)
    found = progress(resources, operation)
    if json:
        print_json(f"operation {command}", {**as_dict(found), "sample": sample(resources, operation)})
    else:
        show(found)
