"""An export as Parquet: a row for each process.

Its columns are those of the table `processes` (docs/sql.md), `tasks` with those of the table `decisions` for each task,
and `record`: all of it as the line that it would be in JSON lines, from which it is read back.
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
"""Rows that are read together: as many as an operation writes to a file."""
MAX_EXPANSION = 1000
"""Bytes of texts for each byte of a file. An export of a hundred alike processes has about 50."""
ALWAYS_EXPANDS_TO = 16 * 1024 * 1024
"""Bytes of texts that any file may hold: as many as MongoDB's largest record."""
READER_MEMORY = 256 * 1024 * 1024
"""Bytes of address space that reading takes beside the texts."""
_STATM = Path("/proc/self/statm")
"""Where Linux tells how much address space a process has, in pages."""


def check() -> None:
    """Raises InputError where Parquet can't be written, or read, here."""
    _driver()


def write(file: IO[bytes], processes: Iterable[Line]) -> int:
    """Write these processes, some at a time; how many."""
    pyarrow, parquet = _driver()
    schema = _schema(pyarrow)
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        rows, size, written = list[dict[str, Any]](), 0, 0
        for whole, line in processes:
            rows.append({**_row(whole), RECORD: line})
            size, written = size + len(line), written + 1
            if size > PORTION_BYTES:
                writer.write_table(pyarrow.Table.from_pylist(rows, schema))
                rows, size = [], 0
        if rows:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
    return written


def lines(path: Path) -> Iterator[str]:
    """The processes of a file, each as a line. Raises InputError for what is no export, or would take too much memory.

    A file says itself how large its texts are, and a text that is there once may stand for many rows. So what a file
    may hold is limited by its size, and each step of reading it by the memory that it takes.
    """
    pyarrow, parquet = _driver()
    pool = pyarrow.default_memory_pool()
    # Others reserve address space ahead, which would count for the limit.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    try:
        yield from _lines(pyarrow, parquet, path)
    except MemoryError:
        raise InputError(_too_large(path, "takes more memory than an export of its size")) from None
    except (OSError, pyarrow.ArrowException) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else f"it is no Parquet: {error}"
        raise InputError(f"{path}: can't be read: {told}") from None
    finally:
        pyarrow.set_memory_pool(pool)


def _lines(pyarrow: Any, parquet: Any, path: Path) -> Iterator[str]:
    with path.open("rb") as opened:
        most = ALWAYS_EXPANDS_TO + MAX_EXPANSION * path.stat().st_size
        memory = READER_MEMORY + 2 * min(most, MAX_LINE)
        with memory_limited(memory):
            schema = parquet.read_schema(opened)
            if RECORD not in schema.names or schema.field(RECORD).type != pyarrow.string():
                raise InputError(f"{path}: it is no export: it has no texts in a column `{RECORD}`")
            # A text that many rows have is in memory once.
            file = parquet.ParquetFile(opened, read_dictionary=[RECORD], pre_buffer=False)
            batches = file.iter_batches(ROWS_READ, columns=[RECORD], use_threads=False)
        read = 0
        while True:
            with memory_limited(memory):
                batch = next(batches, None)
            if batch is None:
                return
            for text in batch.column(0):
                line = text.as_py() or ""
                read += len(line)
                if read > most or len(line) > MAX_LINE:
                    raise InputError(_too_large(path, f"holds more than {min(most, MAX_LINE):,} bytes of text"))
                yield line


def _too_large(path: Path, why: str) -> str:
    return f"{path}: {why}; if you trust it, write its column `{RECORD}` to a file of lines that ends in .jsonl"


def copy(path: Path, to: IO[bytes], is_kept: Callable[[str], bool]) -> int:
    """Write those rows of a file that we have written to another whose lines are to be kept; how many. Raises
    InputError for what is no Parquet. Without the limits of `lines`, which are the whole program's."""
    pyarrow, parquet = _driver()
    try:
        return _copy(pyarrow, parquet, path, to, is_kept)
    except pyarrow.ArrowException as error:
        raise InputError(f"{path}: can't be read: it is no Parquet: {error}") from None


def _copy(pyarrow: Any, parquet: Any, path: Path, to: IO[bytes], is_kept: Callable[[str], bool]) -> int:
    schema, written = _schema(pyarrow), 0
    with (
        path.open("rb") as opened,
        parquet.ParquetFile(opened) as file,
        parquet.ParquetWriter(to, schema, compression="zstd") as writer,
    ):
        for batch in file.iter_batches(ROWS_READ):
            kept = pyarrow.array([is_kept(line) for line in batch.column(RECORD).to_pylist()], pyarrow.bool_())
            written += kept.true_count
            writer.write_table(pyarrow.Table.from_batches([batch.filter(kept)]).cast(schema))
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
    return {**row, "tasks": tasks}


@contextmanager
def memory_limited(additional: int) -> Iterator[None]:
    """Have every allocation fail, as MemoryError, that would take more than so many additional bytes of address space.

    The limit is the whole program's, so keep it short. Where the system is not Linux there is none.
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
