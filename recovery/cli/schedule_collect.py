"""`recovery schedule collect`: what is old is removed by itself."""

from __future__ import annotations

from typing import Annotated

import typer

from recovery.cli.command_options import YES, JsonOption

HELP = """Order an operation of the kind collect at each slot of a schedule, applied as soon as its plan is made.

What is selected is counted from each slot on: ended:before(90d) is what ended longer than 90 days before. A slot that
comes while the operation before is under way is skipped.

Example: [bold]recovery schedule collect nightly 'ended:before(90d)' 'schedule=0 3 * * *' --reason "disk space"[/bold]
"""


def collect(  # noqa: PLR0913
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    selection: Annotated[
        str, typer.Argument(metavar="SELECTION", show_default=False, help="Which processes, as `recovery find` has it.")
    ],
    settings: Annotated[list[str], typer.Argument(metavar="SETTING=VALUE", show_default=False)],
    reason: Annotated[str, typer.Option("--reason", help="Kept with each operation; needed.", show_default=False)] = "",
    export: Annotated[str | None, typer.Option(metavar="FOLDER", help="Write what is removed there before.")] = None,
    format: Annotated[
        str | None, typer.Option("--format", metavar="jsonl|parquet", help="Of the export; default: jsonl.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Processes a second; default: as fast as it goes.")] = None,
    yes: Annotated[bool, typer.Option(YES, help="Don't ask on a terminal.")] = False,
    json: JsonOption = False,
) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.removals import agree_to_removal
    from recovery.cli.schedule_commands import tell
    from recovery.engine.operators.saved_searches import read_search
    from recovery.operations import OperationRequest
    from recovery.operations.commands import schedule_operation
    from recovery.schedule import assignments
    from recovery.search import in_words

    resources = connect()
    if not yes:
        agree_to_removal(in_words(read_search(resources, selection)), ", and what is that old by then at each slot")
    asked = OperationRequest("collect", selection, export=export, export_format=format, rate=rate)
    added = schedule_operation(resources, name, asked, assignments(settings, f"schedule {name}"), reason)
    tell("collect", added, "added", json)
