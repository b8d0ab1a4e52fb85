"""Exports as Parquet: one row for each process.

The columns are those of the table `processes` (docs/sql.md), `tasks` with the columns of the table `decisions` for each
task, and `record`: the whole process as a line of the JSON lines format. Imports read only `record`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

from recovery.errors import InputError
from recovery.store import PORTION_BYTES
from recovery.store.views.process_exports import MAX_LINE, Line, Whole
from recovery.store.views.table_columns import TABLES, Table

ENDING = ".parquet"
RECORD = "record"
_PROCESSES, _TASKS = TABLES["processes"], TABLES["decisions"]
_COLUMN = re.compile(r"(\w+) ([\w<>,]+)(?:, |$)")
ROWS_READ = 100
"""Rows that are read at once: the most that an operation writes to a file."""
MAX_EXPANSION = 1000
"""Maximum bytes of text per byte of a file. An export of a hundred similar processes has about 50."""
ALWAYS_EXPANDS_TO = 16 * 1024 * 1024
"""Bytes of text that a file of any size may hold: the size of MongoDB's largest record."""
READER_MEMORY = 256 * 1024 * 1024
"""Bytes of address space for the reader, in addition to the texts."""
_STATM = Path("/proc/self/statm")
"""Linux's file with the size of this process's address space, in pages."""


def check() -> None:
    """Raise InputError if this process can't write and read Parquet."""
    _driver()


def write(file: IO[bytes], processes: Iterable[Line]) -> int:
    """Write these processes in parts, and return their number."""
    pyarrow, parquet = _driver()
    schema = _schema(pyarrow)
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        rows, length, written = list[dict[str, Any]](), 0, 0
        for whole, line in processes:
            rows.append({**_row(whole), RECORD: line})
            length, written = length + len(line), written + 1
            if length > PORTION_BYTES:
                writer.write_table(pyarrow.Table.from_pylist(rows, schema))
                rows, length = [], 0
        if rows:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
    return written


def lines(path: Path) -> Iterator[str]:
    """Yield each process of a file as a line. Raises InputError if the file is not an export, or would take too much
    memory.

    A file declares the size of its texts itself, and a text stored once may stand for many rows. So the text is limited
    by the size of the file, and the memory is limited for each step of reading.
    """
    pyarrow, parquet = _driver()
    pool = pyarrow.default_memory_pool()
    # Other memory pools reserve address space in advance, which would count towards the limit.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    try:
        yield from _lines(pyarrow, parquet, path)
    except MemoryError:
        raise InputError(_too_large(path, "takes more memory than an export of its size")) from None
    except (OSError, pyarrow.ArrowException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"it is not Parquet: {error}"
        raise InputError(f"{path}: can't be read: {reason}") from None
    finally:
        pyarrow.set_memory_pool(pool)


def _lines(pyarrow: Any, parquet: Any, path: Path) -> Iterator[str]:
    with path.open("rb") as opened:
        max_text = ALWAYS_EXPANDS_TO + MAX_EXPANSION * path.stat().st_size
        memory = READER_MEMORY + 2 * min(max_text, MAX_LINE)
        with memory_limited(memory):
            schema = parquet.read_schema(opened)
            if RECORD not in schema.names or schema.field(RECORD).type != pyarrow.string():
                raise InputError(f"{path}: it is not an export: it has no text column `{RECORD}`")
            # With a dictionary, a text of many rows is in memory only once.
            file = parquet.ParquetFile(opened, read_dictionary=[RECORD], pre_buffer=False)
            batches = file.iter_batches(ROWS_READ, columns=[RECORD], use_threads=False)
        text_read = 0
        while True:
            with memory_limited(memory):
                batch = next(batches, None)
            if batch is None:
                return
            for text in batch.column(0):
                line = text.as_py() or ""
                text_read += len(line)
                if text_read > max_text or len(line) > MAX_LINE:
                    raise InputError(_too_large(path, f"holds more than {min(max_text, MAX_LINE):,} bytes of text"))
                yield line


def _too_large(path: Path, why: str) -> str:
    return f"{path}: {why}; if you trust it, write its column `{RECORD}` to a file of lines that ends in .jsonl"


def copy(path: Path, to: IO[bytes], is_kept: Callable[[str], bool]) -> int:
    """Copy the rows of our own file whose lines are to be kept. Return the number of copied rows.

    Raises InputError if the file is not Parquet. Does not limit memory as `lines` does, because that limit is for the
    whole process.
    """
    pyarrow, parquet = _driver()
    try:
        return _copy(pyarrow, parquet, path, to, is_kept)
    except pyarrow.ArrowException as error:
        raise InputError(f"{path}: can't be read: it is not Parquet: {error}") from None


def _copy(pyarrow: Any, parquet: Any, path: Path, to: IO[bytes], is_kept: Callable[[str], bool]) -> int:
    schema, written = _schema(pyarrow), 0
    with (
        path.open("rb") as opened,
        parquet.ParquetFile(opened) as file,
        parquet.ParquetWriter(to, schema, compression="zstd") as writer,
    ):
        for batch in file.iter_batches(ROWS_READ):
            is_kept_column = pyarrow.array(
                [is_kept(line) for line in batch.column(RECORD).to_pylist()], pyarrow.bool_()
            )
            written += is_kept_column.true_count
            writer.write_table(pyarrow.Table.from_batches([batch.filter(is_kept_column)]).cast(schema))
    return written


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
    """Return (name, type) of each column of a table that is declared for Spark."""
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
    return {**row, "tasks": tasks}


@contextmanager
def memory_limited(additional: int) -> Iterator[None]:
    """Make allocations fail with MemoryError beyond this many additional bytes of address space.

    The limit is for the whole process, so keep the block short. Without effect on systems other than Linux.
    """
    try:
        import resource

        used = int(_STATM.read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([used + additional, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
