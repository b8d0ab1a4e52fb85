"""`recovery import`: processes that were collected, read back from their export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.options import Command
from recovery.cli.output import JsonOption, paragraphs

if TYPE_CHECKING:
    from recovery.engine import Resources

HELP = """Read processes back that `recovery operation start collect --export` has written to files.

A process that is there already is left as it is, so it may be run again. One whose custom id another process has by now
comes back without it. A line that is no process is an error, and nothing after it is read.

Example: [bold]recovery import /mnt/exports/operation-12-*.jsonl --reason "the auditors ask"[/bold]
"""


def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False, help="Files of an export.")],
    reason: Annotated[
        str, typer.Option("--reason", help="Why; needed, and kept in the audit log.", show_default=False)
    ] = "",
    json: JsonOption = False,
) -> None:
    from recovery.cli.envelope import print_json
    from recovery.cli.output import connect, console
    from recovery.engine.operations.auditing import audited
    from recovery.engine.operations.operator import reason_of
    from recovery.plurals import count

    why, resources = reason_of(reason, "kept in the audit log"), connect()
    brought = there = 0
    with audited(resources, "import", " ".join(map(str, files)), why) as outcome:
        for file in files:
            some, others = _read(resources, file)
            brought, there = brought + some, there + others
        outcome.text = f"{count(brought, 'process')} brought back, {there} were there"
    if json:
        print_json("import", {"imported": brought, "there": there})
    else:
        console().print(f"{count(brought, 'process')} brought back, {there} were there already")


def _read(resources: Resources, file: Path) -> tuple[int, int]:
    from recovery.errors import InputError

    brought = there = 0
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    key = resources.store.exports.insert(line)
                except InputError as error:
                    raise InputError(f"{file}, line {number}: {error}; what stands before it was read") from None
                brought, there = brought + (key is not None), there + (key is None)
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise InputError(f"{file}: can't be read: {told}") from None
    return brought, there


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command("import", cls=Command, help=paragraphs(HELP))(import_)
