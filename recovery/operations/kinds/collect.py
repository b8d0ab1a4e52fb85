"""Collect: remove ended processes that nobody needs any more, with all of their records.

A process stays if it is running or broken, if its end may still be asked for, or if its schedule has not yet recorded
how it ended.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from recovery.engine import Resources
from recovery.engine.end.fencing import being_removed, remove
from recovery.engine.isolation import in_a_line, is_of_servers
from recovery.errors import InputError
from recovery.operations.export import NOTHING, Exported, append, take_out
from recovery.operations.kinds.base import Kind, Option, Options, Planned, described, ended, plan_each
from recovery.operations.parquet import check as check_parquet
from recovery.records import (
    ENDED_PROCESSES,
    Operation,
    OperationKind,
    OperationResult,
    Process,
    ResultState,
    given,
)
from recovery.records.operation import ExportFormat

log = logging.getLogger(__name__)

LATELY = timedelta(hours=1)
"""Minimum time since a process ended. Within this time its starter can still read the result."""

_UNFIT = "not removed, because its export could not be imported: {}. A collect without --export removes it"


def _read_export(_: Resources, options: Options) -> str:
    folder = given.text(options["export"], "--export")
    if not Path(folder).is_absolute():
        raise InputError(f"--export {folder}: give the whole path of a folder that all workers see: /...")
    if "\0" in folder or (Path(folder).exists() and not Path(folder).is_dir()):  # only workers can check more than this
        raise InputError(f"--export {given.shown(folder)}: is not a folder; give a folder that all workers see")
    return folder


def _read_format(_: Resources, options: Options) -> ExportFormat:
    wanted = _format_named(options["export_format"])
    if options["export"] is None:
        raise InputError(f"--format {wanted}: {_OF_AN_EXPORT}")
    if wanted is ExportFormat.PARQUET:
        check_parquet()
    return wanted


def _format_named(name: Any) -> ExportFormat:
    known = [export_format.value for export_format in ExportFormat]
    if name not in known:
        raise InputError(f"--format {given.shown(name)}: give one of {', '.join(known)}")
    return ExportFormat(name)


_OF_AN_EXPORT = "needs an export; give its folder with --export FOLDER"
EXPORT = Option(
    "export",
    "--export",
    "is for collect; {kind} removes nothing",
    _read_export,
    shown=lambda folder: f" {given.text(folder, '--export')}",
)
EXPORT_FORMAT = Option(
    "export_format", "--format", _OF_AN_EXPORT, _read_format, shown=lambda name: f" {_format_named(name)}"
)


class Collect(Kind):
    """Removes ended processes."""

    name = OperationKind.COLLECT
    options = (EXPORT, EXPORT_FORMAT)
    may_match_none = True
    none = (
        "none can be removed yet: each runs, is broken, has ended within the last hour, or is awaited by its schedule"
    )

    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        store = self.resources.store
        now, awaited = store.now(), store.schedules.awaited()

        def judge(process: Process) -> str | None:
            return "remove" if _is_old(process, now) and process.id not in awaited else None

        return plan_each(self.resources, operation, process_ids, judge)

    def apply(self, operation: Operation, results: Sequence[OperationResult]) -> list[OperationResult]:
        """Export the unchanged processes of a page, if an export was ordered, and then remove them."""
        seen = self.resources.store.processes.briefs([result.process for result in results])
        awaited = self.resources.store.schedules.awaited()
        unchanged = [
            seen[result.process]
            for result in results
            if result.process in seen
            and described(seen[result.process]) == result.before
            and result.process not in awaited
        ]
        try:
            # Checked before the export: a live process is intact, and an export would refuse it.
            live = self.resources.store.removals.live([process.id for process in unchanged])
            unchanged = [process for process in unchanged if process.id not in live]
            export, unfit = self._export(operation, unchanged)
            removed = remove(self.resources, [process for process in unchanged if process.id not in unfit])
            if export is not None:
                self._take_out(export, [process.id for process in unchanged if process.id not in removed])
        except Exception as error:
            if is_of_servers(error):
                raise
            return [ended(result, ResultState.ERROR, seen.get(result.process), in_a_line(error)) for result in results]
        return [
            ended(result, ResultState.ERROR, seen[result.process], _UNFIT.format(unfit[result.process]))
            if result.process in unfit
            else _ended(result, seen.get(result.process), removed)
            for result in results
        ]

    def _export(self, operation: Operation, processes: Sequence[Process]) -> Exported:
        """Write these processes to an export file, except those whose removal has already begun. They were exported
        before that, and are incomplete now."""
        if operation.export is None:
            return NOTHING
        removing = being_removed(self.resources, processes)
        complete_ids = [process.id for process in processes if process.id not in removing]
        return append(self.resources, operation, complete_ids) if complete_ids else NOTHING

    def _take_out(self, export: Path, process_ids: Sequence[str]) -> None:
        """Take the processes that stay, for example because they were restarted, out of the export.

        Entries of processes that another worker is removing or has removed are kept, because they may be the only copy.
        """
        processes = self.resources.store.processes.briefs(process_ids)
        remaining_ids = processes.keys() - being_removed(self.resources, processes.values())
        if not remaining_ids:
            return
        try:
            take_out(export, remaining_ids)
        except (OSError, InputError) as error:
            log.warning(
                "%s contains processes that were not removed and may have changed since (%s): %s",
                export,
                error,
                ", ".join(sorted(remaining_ids)),
            )


def _is_old(process: Process, now: datetime) -> bool:
    at_rest = process.recovery_time is None and not process.redo and not process.marker_due
    return (
        process.state in ENDED_PROCESSES
        and at_rest
        and process.ended_at is not None
        and process.ended_at < now - LATELY
    )


def _ended(result: OperationResult, process: Process | None, removed: set[str]) -> OperationResult:
    if result.process in removed or (process is None and result.begun):
        return ended(result, ResultState.DONE, None)
    if process is None:
        return ended(result, ResultState.CHANGED, None, "somebody else removed it")
    return ended(
        result, ResultState.CHANGED, process, "it has changed since it was planned, or one of its records is live"
    )
