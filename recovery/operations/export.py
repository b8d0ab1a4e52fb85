"""What an operation removes, written to files before: a folder that all workers see, a file for each page.

A file is complete and on the disk before anything of it is removed, or it is not there under its name. All that is in
it can be read back: by the checks of an import.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, NamedTuple

from recovery.engine import Resources
from recovery.errors import InputError
from recovery.operations import parquet
from recovery.operations.import_checks import check
from recovery.records import Operation
from recovery.records.ids import new_pass
from recovery.records.operation import ExportFormat
from recovery.store.views.process_exports import Line


class Exported(NamedTuple):
    """What came of it: the file, or None if there is nothing to write to one; and {process: why nobody could read it
    back} of those that are not in it."""

    path: Path | None = None
    unfit: Mapping[str, str] = MappingProxyType({})


NOTHING = Exported()


def append(resources: Resources, operation: Operation, process_ids: Sequence[str]) -> Exported:
    """Write these processes to a new file in the operation's folder. Raises InputError where that can't be done."""
    kind = operation.export_format or ExportFormat.JSON_LINES
    # A page that was cut off is written again, to another file: an import takes each process once. Its name is of no
    # process: others may have made the ids.
    to = Path(operation.export or "") / f"operation-{operation.id}-{new_pass()}.{kind.value}"
    unfit = dict[str, str]()
    try:
        written = _write(to, lambda file: _WRITERS[kind](file, _fit(resources, process_ids, unfit)))
    except (OSError, InputError) as error:
        told = error.strerror or error if isinstance(error, OSError) else error
        raise InputError(f"{to} can't be written: {told}; nothing was removed") from None
    return Exported(to if written else None, unfit)


def _fit(resources: Resources, process_ids: Sequence[str], unfit: dict[str, str]) -> Iterator[Line]:
    """Those of these processes that an import takes, with what they are as lines. Why the others are not goes to
    `unfit`."""
    now = resources.store.now()
    for found in resources.store.exports.wholes(process_ids):
        whole = found.without_mark()  # by nobody's order
        try:
            check(whole, now)
            line = whole.line()
        except InputError as error:
            unfit[whole.id] = str(error)
        else:
            yield whole, line


def take_out(export: Path, process_ids: Collection[str]) -> None:
    """Take these processes out of a file: what was written of them is not what they are now, and they were not removed.
    The file is replaced at once, or is gone if it has no others. Raises OSError, and InputError for what is no
    export."""

    def is_kept(line: str | bytes) -> bool:
        try:
            return json.loads(line)["process"]["_id"] not in process_ids
        except (ValueError, LookupError, TypeError):
            raise InputError(f"{export} is no export any more") from None

    def kept_lines(file: IO[bytes]) -> int:
        with export.open("rb") as lines:
            return sum(bool(file.write(line)) for line in lines if is_kept(line))

    is_parquet = export.suffix == parquet.ENDING
    _write(export, (lambda file: parquet.copy(export, file, is_kept)) if is_parquet else kept_lines)


def _write(to: Path, write: Callable[[IO[bytes]], int]) -> int:
    """Write a file that is complete under its name, and on the disk, or is not there, or is as it was before; how many
    processes are in it. Without any it is not there."""
    unfinished = to.with_suffix(".unfinished")
    try:
        # For nobody else's eyes: arguments and results are in it.
        with open(unfinished, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            written = write(file)
            file.flush()
            os.fsync(file.fileno())
        if written:
            unfinished.rename(to)
        else:
            to.unlink(missing_ok=True)
        _sync(to.parent)
    finally:
        with suppress(OSError):  # of one that is finished the name is gone
            unfinished.unlink()
    return written


def _json_lines(file: IO[bytes], processes: Iterable[Line]) -> int:
    return sum(bool(file.write(f"{line}\n".encode())) for _, line in processes)


_WRITERS = {ExportFormat.JSON_LINES: _json_lines, ExportFormat.PARQUET: parquet.write}


def _sync(folder: Path) -> None:
    """The name of a file is on the disk once its folder is."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
