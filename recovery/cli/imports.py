"""`recovery import`: processes that were collected, read back from their export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recovery.cli.command_options import Command, JsonOption, paragraphs

HELP = """Read processes back that `recovery operation start collect --export` has written to files.

A process that is there as it was exported is left as it is, so it may be run again; one that is there of an earlier
epoch, and at rest, is replaced. One whose custom id another process has by now comes back without it. All files are
checked first: if anything in them is no process that has ended, or is there of a later epoch, nothing is saved.

Example: [bold]recovery import /mnt/exports/operation-12-*.jsonl --reason "the auditors ask"[/bold]
"""


def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False, help="Files of an export.")],
    reason: Annotated[
        str, typer.Option("--reason", help="Why; needed, and kept in the audit log.", show_default=False)
    ] = "",
    json: JsonOption = False,
) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.output import console, print_json
    from recovery.engine.operators.auditing import audited
    from recovery.engine.operators.operator import reason_of
    from recovery.operations.importing import read_back
    from recovery.wording import count

    why, resources = reason_of(reason, "kept in the audit log"), connect()
    with audited(resources, "import", " ".join(map(str, files)), why) as outcome:
        brought, there, replaced = read_back(resources, files)
        told = f", {replaced} of them in place of what they had come to before" if replaced else ""
        outcome.text = f"{count(brought, 'process')} brought back{told}, {there} were there"
    if json:
        print_json("import", {"imported": brought, "there": there, "replaced": replaced})
    else:
        console().print(f"{count(brought, 'process')} brought back{told}, {there} were there already")


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command("import", cls=Command, help=paragraphs(HELP))(import_)
