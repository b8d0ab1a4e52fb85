"""Processes read back from the files of an export, some hundred at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from recovery.engine import Resources
from recovery.errors import InputError
from recovery.operations import parquet
from recovery.operations.import_checks import check
from recovery.store import PORTION_BYTES
from recovery.store.views.exports import MAX_LINE, Whole

BATCH = 500
"""Processes that are saved together: about five round trips for all of them."""

_WHAT_TO_DO = "Nothing was read back: leave this process out of the file, or have the file as it was exported"


class Brought(NamedTuple):
    """What came of it: processes that were saved, and that were there already."""

    saved: int = 0
    there: int = 0


def read_back(resources: Resources, files: Iterable[Path]) -> Brought:
    """Save the processes of these files. Those that are there are left as they are, so it may be run again.

    All files are checked before anything is saved. Raises InputError for what is no process that has ended: it names
    the file, the place in it, the process and the field.
    """
    saved = there = 0
    files = list(files)
    for file in files:
        for _ in _processes(resources, file):
            pass
    for file in files:
        for batch in _batches(resources, file):
            brought = len(resources.store.exports.insert(batch))
            saved, there = saved + brought, there + len(batch) - brought
    return Brought(saved, there)


def _batches(resources: Resources, file: Path) -> Iterator[list[Whole]]:
    """The processes of a file, as many at a time as may be in memory at once."""
    batch, size = list[Whole](), 0
    for process, length in _processes(resources, file):
        batch.append(process)
        size += length
        if len(batch) >= BATCH or size > PORTION_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _processes(resources: Resources, file: Path) -> Iterator[tuple[Whole, int]]:
    """The processes of a file, and how long each is as a line."""
    for where, line in _lines(file):
        try:
            process = resources.store.exports.parsed(line)
            check(process)
        except InputError as error:
            raise InputError(f"{file}, {where}: {error}. {_WHAT_TO_DO}") from None
        yield process, len(line)


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    """(where it stands, a process as a line)."""
    if file.exists() and not file.is_file():
        raise InputError(f"{file}: is no regular file, and it is read twice; write what is in it to a file first")
    if file.suffix == parquet.ENDING:
        yield from ((f"row {number}", line) for number, line in enumerate(parquet.lines(file), 1))
        return
    try:
        with file.open("rb") as opened:
            for number, line in enumerate(iter(lambda: opened.readline(MAX_LINE + 1), b""), 1):
                if len(line) > MAX_LINE:
                    raise InputError(f"{file}, line {number}: is longer than {MAX_LINE:,} bytes. {_WHAT_TO_DO}")
                yield f"line {number}", line.decode()
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise InputError(f"{file}: can't be read: {told}") from None
