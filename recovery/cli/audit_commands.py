"""`recovery audit`: what operators did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli.command_options import Commands, JsonOption
from recovery.cli.connection import connect
from recovery.cli.output import GAP, Labelled, console, line, moment, print_json, print_rows
from recovery.limits import MAX_NUMBER
from recovery.wording import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from recovery.records import AuditEntry

HELP = """Show what operators did: who, when, what, to what, why, from where, and what came of it.

Every command that changes something writes an entry before it begins, and its outcome after; one without an outcome was
cut off. Entries are kept for 400 days.

Example: [bold]recovery audit --what actor --limit 20[/bold]
"""

HEADERS = ("at (UTC)", "by", "what", "target", "why", "outcome")
Row = tuple[str, str, str, str, str, str]

commands = Commands()


@commands.add(HELP)
def audit(
    what: Annotated[str | None, typer.Option(help="Only what begins so: `actor`, `operation apply`.")] = None,
    target: Annotated[str | None, typer.Option(help="Only what was done to this.")] = None,
    operation: Annotated[
        int | None, typer.Option(min=1, max=MAX_NUMBER, help="Only of the operation of this number.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many, the newest first.")] = 50,
    json: JsonOption = False,
) -> None:
    found = connect(needs_redis=False).store.audit_log.newest(limit, what=what, target=target, operation=operation)
    if json:
        print_json("audit", {"entries": [_as_dict(entry) for entry in found]})
        return
    if not found:
        console().print("none")
        return
    _print(console(), [_row(entry) for entry in found])


def _print(out: Console, rows: Sequence[Row]) -> None:
    """Print a table with a line for each entry. In a terminal that is too narrow for it, the reason and the outcome,
    and a long target, are on a second line."""
    widths = [max(len(printable(text)) for text in column) for column in zip(HEADERS, *rows, strict=True)]
    if sum(widths) + GAP * (len(widths) - 1) <= out.width or sum(widths[:3]) + GAP * 3 > out.width:
        print_rows(out, HEADERS, rows)
        return
    for at, by, what, target, why, outcome in ((*HEADERS[:4], "", ""), *rows):
        cells = (f"{printable(text):<{width + GAP}}" for text, width in zip((at, by, what), widths, strict=False))
        start = "".join(cells)
        below = [why, outcome]
        if len(start) + len(printable(target)) > out.width:
            below.insert(0, target)
            target = ""
        out.print(line(f"{start}{printable(target)}".rstrip()))
        if text := "; ".join(part for part in below if part):
            out.print(Labelled([("", text)], widths[0] + GAP))


def _row(entry: AuditEntry) -> Row:
    return moment(entry.at), entry.who, entry.what, entry.target, entry.why, entry.outcome or "cut off, or under way"


def _as_dict(entry: AuditEntry) -> dict[str, Any]:
    import json as json_text

    return {
        "at": entry.at,
        "by": entry.who,
        "from": entry.origin,
        "what": entry.what,
        "target": entry.target,
        "why": entry.why,
        # What was too long was cut, and is no JSON any more.
        "details": json_text.loads(entry.details or "") if (entry.details or "").endswith("}") else entry.details,
        "outcome": entry.outcome,
        "ended_at": entry.ended_at,
        "operation": entry.operation,
    }
