"""`recovery operation`: work on many processes, planned first, and applied when somebody says so.

This module lists and shows operations, and writes what they did process by process: in the terminal, or as CSV, JSON
lines or Parquet. `operation_changes` orders and changes them.
"""

from __future__ import annotations

import csv
import json as json_text
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli import operation_changes, saved_operation_commands
from recovery.cli.command_options import Commands, JsonOption
from recovery.cli.connection import connect
from recovery.cli.operation_changes import Number
from recovery.cli.operation_texts import as_dict, result_dict
from recovery.cli.operation_view import print_all, print_whole
from recovery.cli.output import console, print_json, print_rows, stream_json
from recovery.errors import InputError
from recovery.wording import count, printable

if TYPE_CHECKING:
    from recovery.engine import Resources
    from recovery.records import Operation, ResultState

GROUP = """Check, repair, restart or abort many processes at once: durable, resumable, and on record.

An operation is planned first, which changes nothing; [italic]apply[/italic] runs the very plan that was shown. Workers
do it, and whoever of them is killed, it goes on.

Example: [bold]recovery operation start repair --all --reason "Redis was lost" --watch[/bold]
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
REPORT = """Write what an operation found on, and did to, each process: as a table, as JSON, or to a file by its ending.

Example: [bold]recovery operation report 12 --to restarted.csv[/bold]
"""

FIRST = 100
"""Results that a table shows, unless --limit is given."""
COLUMNS = (
    *("operation", "process", "type", "state", "plan", "rules", "repaired", "before", "after", "error", "at"),
    "ended_at",
)
FORMULAS = ("=", "+", "-", "@", "|", "%", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How texts begin that spreadsheets work out: in a wide form, too, which some take for the same."""
ENDINGS = (".csv", ".json", ".jsonl", ".parquet")

commands = Commands("operation", GROUP)


@commands.add(LIST, "list")
def list_(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 20,
    json: JsonOption = False,
) -> None:
    from recovery.operations import progress

    resources = connect(needs_redis=False)
    read = resources.store.operations.newest_with_damaged(limit)
    found, damaged = [progress(resources, operation) for operation in read.records], [str(one) for one in read.damaged]
    if json:
        print_json("operation list", {"operations": [as_dict(one) for one in found], "damaged": damaged})
    else:
        print_all(console(), found, damaged)


@commands.add(SHOW)
def show(number: Number, json: JsonOption = False) -> None:
    from recovery import operations

    resources = connect(needs_redis=False)
    print_whole(resources, "show", operations.find(resources, number), json=json)


@commands.add(WATCH)
def watch(number: Number, json: JsonOption = False) -> None:
    from recovery import operations

    resources = connect(needs_redis=False)
    print_whole(resources, "watch", operations.find(resources, number), json=json, watch=True)


@commands.add(REPORT)
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

    resources = connect(needs_redis=False)
    operation = operations.find(resources, number)
    states = operations.states_of(state or [])
    if to is not None:
        write_file(resources, operation, states, to, limit)
    else:
        print_results(resources, operation, states, limit, json=json)


def print_results(
    resources: Resources, operation: Operation, states: Sequence[ResultState], limit: int | None, *, json: bool
) -> None:
    """Print a table of the first results, or one JSON object with all of them, or with `limit` of them."""
    if json:
        rows = _results(resources, operation, states, limit)
        stream_json("operation report", {"number": operation.id}, "results", rows)
        return
    out, most = console(), limit or FIRST
    found = list(_results(resources, operation, states, most + 1))
    if not found:
        out.print("none")
        return
    shown = [(row["process"], row["type"], row["state"], _what(row)) for row in found[:most]]
    print_rows(out, ("process", "type", "state", "what"), shown)
    if len(found) > most:
        told = f"these are the first {most:,}, and there are more: --to FILE and --json give all, --limit so many"
        out.print(told, style="dim")


def write_file(
    resources: Resources, operation: Operation, states: Sequence[ResultState], to: Path, limit: int | None
) -> None:
    """Write all of it to a file, by its ending. Raises InputError for one that can't be written."""
    if to.suffix not in ENDINGS:
        raise InputError(f"--to {to}: its ending says what it is to be: {', '.join(ENDINGS)}")
    rows = ({"operation": operation.id, **row} for row in _results(resources, operation, states, limit))
    try:
        written = _WRITERS[to.suffix](to, rows)
    except OSError as error:
        raise InputError(f"--to {to}: can't be written: {error.strerror or error}") from None
    console().print(f"{count(written, 'result')} written to {to}")


def _results(
    resources: Resources, operation: Operation, states: Sequence[ResultState], limit: int | None
) -> Iterator[dict[str, Any]]:
    left = limit
    for page in resources.store.operation_results.pages(operation.id, states):
        for result in page if left is None else page[:left]:
            yield result_dict(result)
        if left is not None:
            left -= len(page)
            if left <= 0:
                return


def _what(row: dict[str, Any]) -> str:
    rules = ", ".join(f"{rule} {number}" for rule, number in (row["repaired"] or row["rules"]).items())
    said = rules or row["plan"]
    return f"{said}; {row['error']}" if row["error"] else said


def _csv(to: Path, rows: Iterator[dict[str, Any]]) -> int:
    written = 0
    with to.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _cell(_flat(row[name])) for name in COLUMNS})
            written += 1
    return written


def _cell(value: Any) -> Any:
    """Return a text as a spreadsheet or a terminal may show it.

    Others wrote the text, so it becomes one line of visible characters. A text that would begin a formula gets an
    apostrophe before it.
    """
    if not isinstance(value, str):
        return value
    shown = printable(value)
    return f"'{shown}" if shown.lstrip().startswith(FORMULAS) else shown


def _json_lines(to: Path, rows: Iterator[dict[str, Any]]) -> int:
    written = 0
    with to.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json_text.dumps(row, default=datetime.isoformat) + "\n")
            written += 1
    return written


def _parquet(to: Path, rows: Iterator[dict[str, Any]]) -> int:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(f"--to {to}: Parquet needs pyarrow: pip install 'recovery-workers[parquet]'") from None
    times = {"at", "ended_at"}
    fields = [(name, pyarrow.timestamp("ms", "UTC") if name in times else pyarrow.string()) for name in COLUMNS[1:]]
    schema = pyarrow.schema([("operation", pyarrow.int64()), *fields])
    written = 0
    with pyarrow.parquet.ParquetWriter(to, schema) as writer:
        while page := list(islice(rows, 10_000)):
            table = [{name: row[name] if name in times else _flat(row[name]) for name in COLUMNS} for row in page]
            writer.write_table(pyarrow.Table.from_pylist(table, schema))
            written += len(page)
    return written


def _flat(value: Any) -> Any:
    """Return a map as its JSON text, and a time in ISO 8601."""
    if isinstance(value, dict):
        return json_text.dumps(value)
    return value.isoformat() if isinstance(value, datetime) else value


_WRITERS = {".csv": _csv, ".json": _json_lines, ".jsonl": _json_lines, ".parquet": _parquet}


operation_changes.add_to(commands)
saved_operation_commands.add_to(commands)
