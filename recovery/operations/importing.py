"""Processes read back from the files of an export, some hundred at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from recovery.engine import Resources
from recovery.engine.end.fencing import being_removed, remove
from recovery.errors import InputError
from recovery.operations import parquet
from recovery.operations.import_checks import check
from recovery.records import ENDED_PROCESSES, Process
from recovery.store import PORTION_BYTES
from recovery.store.views.process_exports import MAX_LINE, Whole
from recovery.wording import count

BATCH = 500
"""Processes that are saved together: about a dozen round trips for all of them."""

_WHAT_TO_DO = "leave this process out of the file, or have the file as it was exported"
MEMORY, EXPANSION = 64 * 1024 * 1024, 16
"""Bytes of address space that a process may take while it is checked, and bytes for each of its line. An export's takes
about five; a text of nothing but brackets takes fifty."""


class Brought(NamedTuple):
    """What came of it: processes that were saved, that were there already (or are in another of the files, as they
    were later), and of the first how many took the place of what they had been in an earlier epoch."""

    saved: int = 0
    there: int = 0
    replaced: int = 0


def read_back(resources: Resources, files: Iterable[Path]) -> Brought:
    """Save the processes of these files. One that is there as it was exported is left as it is, so it may be run again;
    one at rest of an earlier epoch is replaced.

    All files are checked before anything is saved. Raises InputError for what is no process that has ended, which names
    the file, the place in it, the process and the field; and for one that is there of a later epoch, or is live.
    """
    files, latest, brought = list(files), dict[str, int](), Brought()
    try:
        for file in files:
            for batch in _batches(resources, file):
                _check_against(resources, batch)
                for one in batch:
                    latest[one.id] = max(latest.get(one.id, one.exported_epoch), one.exported_epoch)
    except InputError as error:
        raise InputError(f"{error}. Nothing was read back: {_WHAT_TO_DO}") from None
    try:
        for file in files:
            for batch in _batches(resources, file):
                # Of several exports of a process the latest, once.
                wanted = {one.id: one for one in reversed(batch) if latest.get(one.id) == one.exported_epoch}
                for key in wanted:
                    del latest[key]
                saved, replaced = _save(resources, list(wanted.values()))
                there = len(batch) - saved
                brought = Brought(brought.saved + saved, brought.there + there, brought.replaced + replaced)
    except InputError as error:
        told = f"{count(brought.saved, 'process')} at least had been read back by then"
        raise InputError(f"{error}. That came after the files were checked, and {told}: run it again") from None
    return brought


def _check_against(resources: Resources, batch: Sequence[Whole]) -> dict[str, Process]:
    """What is there of these processes, of which each may be left as it is or replaced. Raises InputError."""
    there = resources.store.imports.there([one.id for one in batch])
    removing = being_removed(resources, there.values())
    for one in batch:
        if (found := there.get(one.id)) is None:
            continue
        if one.id in removing:
            raise InputError(f"process {one.id} is just being removed; import it again once that is over")
        told = f"process {one.id} is there of epoch {found.exported_epoch}"
        if one.exported_epoch < found.exported_epoch:
            lost = f"and in the file of the earlier epoch {one.exported_epoch}: what it came to since would be lost"
            raise InputError(f"{told}, {lost}")
        if one.exported_epoch > found.exported_epoch and not _is_at_rest(found):
            later = f"that of epoch {one.exported_epoch} replaces it once it is over and at rest"
            raise InputError(f"{told}, and {found.state}: {later}")
    return there


def _is_at_rest(process: Process) -> bool:
    return process.state in ENDED_PROCESSES and process.recovery_time is None and not process.redo


def _save(resources: Resources, batch: Sequence[Whole]) -> tuple[int, int]:
    """How many of these were saved, and how many of them in place of what was there. Raises InputError."""
    there = _check_against(resources, batch)
    earlier = [there[one.id] for one in batch if one.id in there and there[one.id].exported_epoch < one.exported_epoch]
    gone = remove(resources, earlier) if earlier else set()
    if kept := [process.id for process in earlier if process.id not in gone]:
        raise InputError(f"process {kept[0]} is not replaced: something of it is live, or it was changed just now")
    new = [one for one in batch if one.id not in there or one.id in gone]
    return len(resources.store.imports.save(new)), len(gone)


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
    now = resources.store.now()
    for where, line in _lines(file):
        try:
            with parquet.memory_limited(MEMORY + EXPANSION * len(line)):
                process = resources.store.exports.parsed(line)
                check(process, now)
        except MemoryError:
            raise InputError(f"{file}, {where}: takes more memory than a process of its length") from None
        except InputError as error:
            raise InputError(f"{file}, {where}: {error}") from None
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
                    raise InputError(f"{file}, line {number}: is longer than {MAX_LINE:,} bytes")
                yield f"line {number}", line.decode()
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise InputError(f"{file}: can't be read: {told}") from None
