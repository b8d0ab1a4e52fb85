"""Imports: read processes back from the files of an export."""

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
"""Maximum processes that are saved at once. A batch takes about a dozen round trips."""

_WHAT_TO_DO = "leave this process out of the file, or use the file as it was exported"
MEMORY, EXPANSION = 64 * 1024 * 1024, 16
"""Additional memory that checking a process may take: a constant number of bytes, and bytes per byte of its line.
Exported processes take about five bytes per byte; a text of nothing but brackets takes fifty."""


class Brought(NamedTuple):
    """The result of an import: how many processes were saved, skipped and replaced.

    `there`: processes skipped because they exist already, or because another file has a later epoch of them.
    `replaced`: saved processes that replaced an earlier epoch.
    """

    saved: int = 0
    there: int = 0
    replaced: int = 0


def read_back(resources: Resources, files: Iterable[Path]) -> Brought:
    """Save the processes of these files. An import may be repeated: a process that exists as it was exported is
    skipped, and a process at rest in an earlier epoch is replaced.

    All files are checked before anything is saved.

    Raises:
        InputError: A file has something else than an ended process; the error names the file, the line, the process and
            the field. Or a process exists in a later epoch, or is live.
    """
    files, latest, brought = list(files), dict[str, int](), Brought()
    try:
        for file in files:
            for batch in _batches(resources, file):
                _check_against(resources, batch)
                for process in batch:
                    latest[process.id] = max(latest.get(process.id, process.exported_epoch), process.exported_epoch)
    except InputError as error:
        raise InputError(f"{error}. Nothing was read back: {_WHAT_TO_DO}") from None
    try:
        for file in files:
            for batch in _batches(resources, file):
                # If several exports contain a process, its latest epoch is saved once.
                wanted = {
                    process.id: process
                    for process in reversed(batch)
                    if latest.get(process.id) == process.exported_epoch
                }
                for process_id in wanted:
                    del latest[process_id]
                saved, replaced = _save(resources, list(wanted.values()))
                existing = len(batch) - saved
                brought = Brought(brought.saved + saved, brought.there + existing, brought.replaced + replaced)
    except InputError as error:
        progress = f"{count(brought.saved, 'process')} or more had been saved by then"
        raise InputError(
            f"{error}. It happened after all files were checked, and {progress}: run the import again"
        ) from None
    return brought


def _check_against(resources: Resources, batch: Sequence[Whole]) -> dict[str, Process]:
    """Return the existing processes of a batch. Raises InputError if one of them may neither be kept nor replaced."""
    existing = resources.store.imports.there([process.id for process in batch])
    removing = being_removed(resources, existing.values())
    for process in batch:
        if (stored := existing.get(process.id)) is None:
            continue
        if process.id in removing:
            raise InputError(f"process {process.id} is being removed; import it again when that is done")
        position = f"process {process.id} exists in epoch {stored.exported_epoch}"
        if process.exported_epoch < stored.exported_epoch:
            loss = f"and the file has the earlier epoch {process.exported_epoch}: its later changes would be lost"
            raise InputError(f"{position}, {loss}")
        if process.exported_epoch > stored.exported_epoch and not _is_at_rest(stored):
            remedy = f"epoch {process.exported_epoch} can replace it once it has ended and is at rest"
            raise InputError(f"{position}, and {stored.state}: {remedy}")
    return existing


def _is_at_rest(process: Process) -> bool:
    return process.state in ENDED_PROCESSES and process.recovery_time is None and not process.redo


def _save(resources: Resources, batch: Sequence[Whole]) -> tuple[int, int]:
    """Save these processes. Return how many were saved, and how many of these replaced an earlier epoch. Raises
    InputError."""
    existing = _check_against(resources, batch)
    earlier = [
        existing[process.id]
        for process in batch
        if process.id in existing and existing[process.id].exported_epoch < process.exported_epoch
    ]
    removed = remove(resources, earlier) if earlier else set()
    if remaining := [process.id for process in earlier if process.id not in removed]:
        raise InputError(f"process {remaining[0]} is not replaced: one of its records is live, or it has just changed")
    new = [process for process in batch if process.id not in existing or process.id in removed]
    return len(resources.store.imports.save(new)), len(removed)


def _batches(resources: Resources, file: Path) -> Iterator[list[Whole]]:
    """Yield the processes of a file in batches that fit in memory."""
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
    """Yield each process of a file with the length of its line."""
    now = resources.store.now()
    for position, line in _lines(file):
        try:
            with parquet.memory_limited(MEMORY + EXPANSION * len(line)):
                process = resources.store.exports.parsed(line)
                check(process, now)
        except MemoryError:
            raise InputError(f"{file}, {position}: takes more memory than a process of this length can need") from None
        except InputError as error:
            raise InputError(f"{file}, {position}: {error}") from None
        yield process, len(line)


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    """Yield (position, line) for each process of a file."""
    if file.exists() and not file.is_file():
        raise InputError(f"{file}: is not a regular file, but it must be read twice; copy its content to a file first")
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
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{file}: can't be read: {reason}") from None
