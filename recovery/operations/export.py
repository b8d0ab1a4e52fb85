"""Exports of a collect: each page is written to a file in a folder that all workers see, before its processes are
removed.

A file appears under its name only when it is complete and on disk, and only then are its processes removed. Every
process in it passes the checks of an import, so it can be read back.
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
    """The result of an export.

    `path` is the file, or None if no process was written. `unfit` is {process id: why an import would refuse it} for
    processes that were not written.
    """

    path: Path | None = None
    unfit: Mapping[str, str] = MappingProxyType({})


NOTHING = Exported()


def append(resources: Resources, operation: Operation, process_ids: Sequence[str]) -> Exported:
    """Write these processes to a new file in the operation's folder. Raises InputError if the file can't be written."""
    export_format = operation.export_format or ExportFormat.JSON_LINES
    # If this page is exported again after an interruption, it goes to another file. An import reads each process once.
    # The file name contains no process id, because others may have chosen the ids.
    path = Path(operation.export or "") / f"operation-{operation.id}-{new_pass()}.{export_format.value}"
    unfit = dict[str, str]()
    try:
        written = _write(path, lambda file: _WRITERS[export_format](file, _importable(resources, process_ids, unfit)))
    except (OSError, InputError) as error:
        reason = error.strerror or error if isinstance(error, OSError) else error
        raise InputError(f"{path} can't be written: {reason}; nothing was removed") from None
    return Exported(path if written else None, unfit)


def _importable(resources: Resources, process_ids: Sequence[str], unfit: dict[str, str]) -> Iterator[Line]:
    """Yield the processes that an import would accept, each with its line. Add the reasons for the others to
    `unfit`."""
    now = resources.store.now()
    for stored in resources.store.exports.wholes(process_ids):
        whole = stored.without_mark()  # no operation's mark is exported
        try:
            check(whole, now)
            line = whole.line()
        except InputError as error:
            unfit[whole.id] = str(error)
        else:
            yield whole, line


def take_out(export: Path, process_ids: Collection[str]) -> None:
    """Take these processes out of an export file, because they were not removed and may have changed since.

    The file is replaced atomically, or deleted if no process remains in it. Raises OSError, and InputError if the file
    is not an export.
    """

    def is_kept(line: str | bytes) -> bool:
        try:
            return json.loads(line)["process"]["_id"] not in process_ids
        except (ValueError, LookupError, TypeError):
            raise InputError(f"{export} is not an export any more") from None

    def kept_lines(file: IO[bytes]) -> int:
        with export.open("rb") as lines:
            return sum(bool(file.write(line)) for line in lines if is_kept(line))

    is_parquet = export.suffix == parquet.ENDING
    _write(export, (lambda file: parquet.copy(export, file, is_kept)) if is_parquet else kept_lines)


def _write(path: Path, write: Callable[[IO[bytes]], int]) -> int:
    """Write a file atomically and durably, and return the number of processes in it.

    If writing fails, the path is as it was before. If no process was written, the file does not exist afterwards.
    """
    unfinished = path.with_suffix(".unfinished")
    try:
        # Only the owner may read it, because it contains arguments and results.
        with open(unfinished, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            written = write(file)
            file.flush()
            os.fsync(file.fileno())
        if written:
            unfinished.rename(path)
        else:
            path.unlink(missing_ok=True)
        _sync(path.parent)
    finally:
        with suppress(OSError):  # the name is gone if the file was finished
            unfinished.unlink()
    return written


def _json_lines(file: IO[bytes], processes: Iterable[Line]) -> int:
    return sum(bool(file.write(f"{line}\n".encode())) for _, line in processes)


_WRITERS = {ExportFormat.JSON_LINES: _json_lines, ExportFormat.PARQUET: parquet.write}


def _sync(folder: Path) -> None:
    """Sync a folder, so that the names of its new files are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
