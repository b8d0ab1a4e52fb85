"""What an operation found and did, process by process: in the terminal, or as CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import json as json_text
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.cli.operation_texts import result_dict
from recovery.errors import InputError
from recovery.wording import printable

if TYPE_CHECKING:
    from recovery.engine import Resources
    from recovery.records import Operation, ResultState

FIRST = 100
COLUMNS = (
    *("operation", "process", "type", "state", "plan", "rules", "repaired", "before", "after", "error", "at"),
    "ended_at",
)
FORMULAS = ("=", "+", "-", "@", "|", "%", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How texts begin that spreadsheets work out: in a wide form, too, which some take for the same."""
ENDINGS = (".csv", ".json", ".jsonl", ".parquet")


def print_results(
    resources: Resources, operation: Operation, states: Sequence[ResultState], limit: int | None, *, json: bool
) -> None:
    """Print a table of the first results, or one JSON object with all of them, or with `limit` of them."""
    from recovery.cli.output import console, print_rows, stream_json

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
    from recovery.cli.output import console
    from recovery.wording import count

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
