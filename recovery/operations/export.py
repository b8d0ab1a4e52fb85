"""What an operation removes, written to files before: a folder that all workers see, a file for each page.

A file is complete and on the disk before anything of it is removed, or it is not there under its name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from recovery.engine import Resources
from recovery.errors import InputError
from recovery.records.ids import new_pass

ENDING = ".jsonl"


def append(resources: Resources, number: int, folder: str, process_ids: Sequence[str]) -> Path:
    """Write these processes to a new file in the folder. Raises InputError where that can't be done."""
    # A page that was cut off is written again, to another file: an import takes each process once. Its name is of no
    # process: others may have made the ids.
    to = Path(folder) / f"operation-{number}-{new_pass()}{ENDING}"
    unfinished = to.with_suffix(".unfinished")
    try:
        # For nobody else's eyes: arguments and results are in it.
        with open(unfinished, "x", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            for line in resources.store.exports.lines(process_ids):
                file.write(f"{line}\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(to)
        _sync(to.parent)
    except OSError as error:
        raise InputError(f"{to} can't be written: {error.strerror or error}; nothing was removed") from None
    return to


def _sync(folder: Path) -> None:
    """The name of a file is on the disk once its folder is."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
