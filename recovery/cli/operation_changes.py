"""`recovery operation apply`, `pause`, `resume`, `cancel` and `rate`: each answers in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.command_options import YES, Command, JsonOption, ReasonOption, paragraphs
from recovery.cli.operation_options import NeededReason, Number, WatchOption, print_followed

if TYPE_CHECKING:
    from recovery.engine import Resources
    from recovery.operations import Progress
    from recovery.records import Operation

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
    from recovery.cli.connection import connect

    resources = connect()
    operation = operations.find(resources, number)
    if operation.kind.value == "collect" and operation.state.value == "planned" and not yes:
        from recovery.cli.operation_json import selection_in_words
        from recovery.cli.removals import agree_to_removal

        found = operation.planned.found if operation.planned is not None else 0
        agree_to_removal(f"{found:,} of the {selection_in_words(operation)}")
    _answer(resources, "apply", operations.apply(resources, number, reason), json=json, watch=watch)


def pause(number: Number, reason: ReasonOption = "", json: JsonOption = False) -> None:
    from recovery import operations
    from recovery.cli.connection import connect

    resources = connect()
    paused = operations.pause(resources, number, reason)
    if paused is None:
        _answer_damaged("pause", number, "paused", json=json)
    else:
        _answer(resources, "pause", paused, json=json)


def resume(number: Number, reason: ReasonOption = "", watch: WatchOption = False, json: JsonOption = False) -> None:
    from recovery import operations
    from recovery.cli.connection import connect

    resources = connect()
    _answer(resources, "resume", operations.resume(resources, number, reason), json=json, watch=watch)


def cancel(number: Number, reason: NeededReason = "", json: JsonOption = False) -> None:
    from recovery import operations
    from recovery.cli.connection import connect

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
    from recovery.cli.connection import connect

    resources, wanted = connect(), operations.rate_of(rate)
    _answer(resources, "rate", operations.set_rate(resources, number, wanted, reason), json=json)


def _answer(resources: Resources, command: str, operation: Operation, *, json: bool, watch: bool = False) -> None:
    """Print the new state of an operation in one line; with `watch`, follow it first."""
    from recovery.cli.operation_lines import answer, rate_answer
    from recovery.cli.output import console

    def show(found: Progress) -> None:
        console().print(rate_answer(found.operation) if command == "rate" else answer(found))

    print_followed(resources, command, operation, show, json=json, watch=watch)


def _answer_damaged(command: str, number: int, state: str, *, json: bool) -> None:
    """Print the new state of an operation whose record can't be read."""
    from recovery.cli.output import console, print_json

    if json:
        print_json(f"operation {command}", {"number": number, "state": state, "damaged": True})
    else:
        console().print(f"operation {number} is {state}; the rest of its record can't be read")


def add_to(group: typer.Typer) -> None:
    """Register the commands of this module."""
    for command, text in ((apply, APPLY), (pause, PAUSE), (resume, RESUME), (cancel, CANCEL), (rate, RATE)):
        group.command(cls=Command, help=paragraphs(text))(command)
