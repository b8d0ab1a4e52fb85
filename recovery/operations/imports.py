"""Processes read back from the files of an export, some hundred at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from recovery.engine import Resources
from recovery.errors import InputError
from recovery.operations import parquet
from recovery.store import PORTION_BYTES
from recovery.store.views.exports import Whole

BATCH = 500
"""Processes that are saved together: about five round trips for all of them."""


class Brought(NamedTuple):
    """What came of it: processes that were saved, and that were there already."""

    saved: int = 0
    there: int = 0


def read_back(resources: Resources, files: Iterable[Path]) -> Brought:
    """Save the processes of these files. Those that are there are left as they are, so it may be run again.

    Raises InputError for what is no process; what stands before it is saved.
    """
    saved = there = 0
    for file in files:
        for batch in _batches(resources, file):
            brought = len(resources.store.exports.insert(batch))
            saved, there = saved + brought, there + len(batch) - brought
    return Brought(saved, there)


def _batches(resources: Resources, file: Path) -> Iterator[list[Whole]]:
    """The processes of a file, as many at a time as may be in memory at once. What stands before an error first."""
    batch, size = list[Whole](), 0
    try:
        for what, line in _lines(file):
            try:
                batch.append(resources.store.exports.parsed(line))
            except InputError as error:
                raise InputError(f"{file}, {what}: {error}; what stands before it was read") from None
            size += len(line)
            if len(batch) >= BATCH or size > PORTION_BYTES:
                yield batch
                batch, size = [], 0
    except InputError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    """(where it stands, a process as a line)."""
    if file.suffix == parquet.ENDING:
        yield from ((f"row {number}", line) for number, line in enumerate(parquet.lines(file), 1))
        return
    try:
        with file.open(encoding="utf-8") as lines:
            yield from ((f"line {number}", line) for number, line in enumerate(lines, 1))
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise InputError(f"{file}: can't be read: {told}") from None
