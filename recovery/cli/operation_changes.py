"""`recovery operation start`, `apply`, `pause`, `resume`, `cancel` and `rate`: the commands that order an operation or
change one. All but `start` answer in one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli import operation_options as options
from recovery.cli.command_options import YES, Commands, JsonOption, ReasonOption, agree_to_removal
from recovery.cli.connection import connect
from recovery.cli.operation_texts import answer, rate_answer, selection_in_words
from recovery.cli.operation_view import print_followed, print_whole
from recovery.cli.output import console, print_answer
from recovery.cli.shell_completion import complete_operation

if TYPE_CHECKING:
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

START = """Order an operation on the processes that a selection matches, in the language of `recovery find`.

KIND is check, repair, restart (what failed in broken processes), restart_from (all of them again, or from the tasks of
an actor on, finished ones included), abort, collect (what is over is removed), or set_idle_timeout (of what was started
already). @NAME starts the operation that is saved under this name, and takes no other options of it. The plan is made
first; nothing is changed until `operation apply`, unless --yes is given.

Example: [bold]recovery operation start restart 'type:order error:TimeoutError' --reason "the bank is back"[/bold]
"""


def start(  # noqa: PLR0913
    kind: options.KindOrSaved,
    selection: options.Selection = "",
    all_: options.All = False,
    reason: NeededReason = "",
    yes: Annotated[bool, typer.Option(YES, help="Apply the plan as soon as it is made, unseen.")] = False,
    rate: options.Rate = None,
    priority: options.Priority = None,
    from_actor: options.FromActor = None,
    export: options.Export = None,
    format: options.Format = None,
    idle_timeout: options.IdleTimeout = None,
    thorough: options.Thorough = False,
    spark: options.Spark = None,
    parquet: options.Parquet = None,
    watch: WatchOption = False,
    json: JsonOption = False,
) -> None:
    from recovery import operations

    asked = options.request(
        *(kind, selection, all_, priority),
        apply=yes,
        rate=rate,
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
RATE = """Change how many processes a second an operation changes, or checks, in all, however many workers are at it.

Plans change nothing, and are made as fast as it goes.

Example: [bold]recovery operation rate 12 50[/bold]
"""


def apply(
    number: Number,
    reason: ReasonOption = "",
    yes: Annotated[bool, typer.Option(YES, help="Of a collect: don't ask on a terminal.")] = False,
    watch: WatchOption = False,
    json: JsonOption = False,
) -> None:
    from recovery import operations

    resources = connect()
    operation = operations.find(resources, number)
    if operation.kind.value == "collect" and operation.state.value == "planned" and not yes:
        found = operation.planned.found if operation.planned is not None else 0
        agree_to_removal(f"{found:,} of the {selection_in_words(operation)}")
    _answer(resources, "apply", operations.apply(resources, number, reason), json=json, watch=watch)


def pause(number: Number, reason: ReasonOption = "", json: JsonOption = False) -> None:
    from recovery import operations

    resources = connect()
    paused = operations.pause(resources, number, reason)
    if paused is None:
        _answer_damaged("pause", number, "paused", json=json)
    else:
        _answer(resources, "pause", paused, json=json)


def resume(number: Number, reason: ReasonOption = "", watch: WatchOption = False, json: JsonOption = False) -> None:
    from recovery import operations

    resources = connect()
    _answer(resources, "resume", operations.resume(resources, number, reason), json=json, watch=watch)


def cancel(number: Number, reason: NeededReason = "", json: JsonOption = False) -> None:
    from recovery import operations

    resources = connect()
    cancelled = operations.cancel(resources, number, reason)
    if cancelled is None:
        _answer_damaged("cancel", number, "cancelled", json=json)
    else:
        _answer(resources, "cancel", cancelled, json=json)


def rate(
    number: Number,
    rate: Annotated[
        str, typer.Argument(metavar="RATE", show_default=False, help="Processes a second, or `unlimited`.")
    ],
    reason: ReasonOption = "",
    json: JsonOption = False,
) -> None:
    from recovery import operations

    resources, wanted = connect(), operations.rate_of(rate)
    _answer(resources, "rate", operations.set_rate(resources, number, wanted, reason), json=json)


def _answer(resources: Resources, command: str, operation: Operation, *, json: bool, watch: bool = False) -> None:
    """Print the new state of an operation in one line; with `watch`, follow it first."""

    def show(found: Progress) -> None:
        console().print(rate_answer(found.operation) if command == "rate" else answer(found))

    print_followed(resources, command, operation, show, json=json, watch=watch)


def _answer_damaged(command: str, number: int, state: str, *, json: bool) -> None:
    """Print the new state of an operation whose record can't be read."""
    print_answer(
        f"operation {command}",
        {"number": number, "state": state, "damaged": True},
        f"operation {number} is {state}; the rest of its record can't be read",
        json=json,
    )


def add_to(group: Commands) -> None:
    """Add the commands of this module to those of `operation_commands`."""
    for command, text in (
        (start, START),
        (apply, APPLY),
        (pause, PAUSE),
        (resume, RESUME),
        (cancel, CANCEL),
        (rate, RATE),
    ):
        group.add(text)(command)
