"""An export as Parquet: a row for each process.

Its columns are those of the table `processes` (docs/sql.md), `tasks` with those of the table `decisions` for each task,
and `record`: all of it as the line that it would be in JSON lines, from which it is read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

from recovery.errors import InputError
from recovery.store import PORTION_BYTES
from recovery.store.views.exports import Whole
from recovery.store.views.tables import TABLES, Table

ENDING = ".parquet"
RECORD = "record"
_PROCESSES, _TASKS = TABLES["processes"], TABLES["decisions"]
_COLUMN = re.compile(r"(\w+) ([\w<>,]+)(?:, |$)")
ROWS_READ = 100
"""Rows that are read together: as many as an operation writes to a file."""


def check() -> None:
    """Raises InputError where Parquet can't be written, or read, here."""
    _driver()


def write(file: IO[bytes], wholes: Iterable[Whole]) -> None:
    """Write these processes, some at a time."""
    pyarrow, parquet = _driver()
    schema = _schema(pyarrow)
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        rows, size = list[dict[str, Any]](), 0
        for whole in wholes:
            rows.append(_row(whole))
            size += len(rows[-1][RECORD])
            if size > PORTION_BYTES:
                writer.write_table(pyarrow.Table.from_pylist(rows, schema))
                rows, size = [], 0
        if rows:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))


def lines(path: Path) -> Iterator[str]:
    """The processes of a file, each as a line. Raises InputError for what is no export."""
    pyarrow, parquet = _driver()
    try:
        with path.open("rb") as opened, parquet.ParquetFile(opened) as file:
            if RECORD not in file.schema_arrow.names or file.schema_arrow.field(RECORD).type != pyarrow.string():
                raise InputError(f"{path}: it is no export: it has no texts in a column `{RECORD}`")
            for batch in file.iter_batches(ROWS_READ, columns=[RECORD]):
                yield from ("" if line is None else line for line in batch.column(0).to_pylist())
    except (OSError, pyarrow.ArrowException) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else f"it is no Parquet: {error}"
        raise InputError(f"{path}: can't be read: {told}") from None


def _driver() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError("Parquet needs pyarrow: pip install 'recovery-workers[parquet]'") from None
    return pyarrow, pyarrow.parquet


def _schema(pyarrow: Any) -> Any:
    task = [(name, kind) for name, kind in _columns(pyarrow, _TASKS) if name != "process"]
    tasks = pyarrow.list_(pyarrow.struct(task))
    return pyarrow.schema([*_columns(pyarrow, _PROCESSES), ("tasks", tasks), (RECORD, pyarrow.string())])


def _columns(pyarrow: Any, table: Table) -> list[tuple[str, Any]]:
    """(name, type) of each column, as the table tells Spark."""
    kinds = {
        "string": pyarrow.string(),
        "boolean": pyarrow.bool_(),
        "bigint": pyarrow.int64(),
        "double": pyarrow.float64(),
        "timestamp": pyarrow.timestamp("us", "UTC"),
        "array<string>": pyarrow.list_(pyarrow.string()),
        "map<string,string>": pyarrow.map_(pyarrow.string(), pyarrow.string()),
    }
    return [(name, kinds[kind]) for name, kind in _COLUMN.findall(table.ddl)]


_NAMES = [name for name, _ in _COLUMN.findall(_PROCESSES.ddl)]
_TASK_NAMES = [name for name, _ in _COLUMN.findall(_TASKS.ddl)]


def _row(whole: Whole) -> dict[str, Any]:
    row = dict(zip_longest(_NAMES, _PROCESSES.row(whole.process)))
    if row["labels"] is not None:
        row["labels"] = list(row["labels"].items())
    tasks = [dict(zip_longest(_TASK_NAMES, _TASKS.row(decision))) for decision in whole.decisions]
    return {**row, "tasks": tasks, RECORD: whole.line()}
