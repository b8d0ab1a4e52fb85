"""What an operation removes, written to files before: a folder that all workers see, a file for each page.

A file is complete and on the disk before anything of it is removed, or it is not there under its name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from recovery.engine import Resources
from recovery.errors import InputError
from recovery.operations import parquet
from recovery.records import Operation
from recovery.records.ids import new_pass
from recovery.records.operation import ExportFormat
from recovery.store.views.exports import Whole


def append(resources: Resources, operation: Operation, process_ids: Sequence[str]) -> Path:
    """Write these processes to a new file in the operation's folder. Raises InputError where that can't be done."""
    kind = operation.export_format or ExportFormat.JSON_LINES
    # A page that was cut off is written again, to another file: an import takes each process once. Its name is of no
    # process: others may have made the ids.
    to = Path(operation.export or "") / f"operation-{operation.id}-{new_pass()}.{kind.value}"
    try:
        _write(to, lambda file: _WRITERS[kind](file, resources.store.exports.wholes(process_ids)))
    except (OSError, InputError) as error:
        told = error.strerror or error if isinstance(error, OSError) else error
        raise InputError(f"{to} can't be written: {told}; nothing was removed") from None
    return to


def take_out(export: Path, process_ids: Collection[str]) -> None:
    """Take these processes out of a file: what was written of them is not what they are now, and they were not removed.
    The file is replaced at once, or is gone if it has no others. Raises OSError, and InputError for what is no
    export."""
    is_parquet = export.suffix == parquet.ENDING
    lines = [*parquet.lines(export)] if is_parquet else export.read_text().split("\n")[:-1]
    if all(_id_of(line) in process_ids for line in lines):
        export.unlink()
        _sync(export.parent)
    elif is_parquet:
        _write(export, lambda file: parquet.copy(export, file, lambda line: _id_of(line) not in process_ids))
    else:
        kept = [line for line in lines if _id_of(line) not in process_ids]
        _write(export, lambda file: file.writelines(f"{line}\n".encode() for line in kept))


def _id_of(line: str) -> Any:
    return json.loads(line)["process"]["_id"]


def _write(to: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file that is complete under its name, and on the disk, or is not there, or is as it was before."""
    unfinished = to.with_suffix(".unfinished")
    try:
        # For nobody else's eyes: arguments and results are in it.
        with open(unfinished, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(to)
        _sync(to.parent)
    finally:
        with suppress(OSError):  # of one that is finished the name is gone
            unfinished.unlink()


def _json_lines(file: IO[bytes], wholes: Iterable[Whole]) -> None:
    for whole in wholes:
        file.write(f"{whole.line()}\n".encode())


_WRITERS = {ExportFormat.JSON_LINES: _json_lines, ExportFormat.PARQUET: parquet.write}


def _sync(folder: Path) -> None:
    """The name of a file is on the disk once its folder is."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
