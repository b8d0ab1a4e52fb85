"""Collect: processes that are over, and that nobody would look at any more, are removed with all of their records.

Nothing that is alive goes, nothing that is broken, nothing whose end somebody may still ask for, and nothing that a
schedule has not accounted for.
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
"""Whoever started a process asks for its result within this time, or has to keep it from being collected."""

_UNFIT = "it stays, since nobody could read it back from an export: {}. A collect without --export removes it"


def _read_export(_: Resources, options: Options) -> str:
    folder = given.text(options["export"], "--export")
    if not Path(folder).is_absolute():
        raise InputError(f"--export {folder}: give the whole path of a folder that all workers see: /...")
    if "\0" in folder or (Path(folder).exists() and not Path(folder).is_dir()):  # more only workers know
        raise InputError(f"--export {given.shown(folder)}: is no folder; give one that all workers see")
    return folder


def _read_format(_: Resources, options: Options) -> ExportFormat:
    wanted = _format_named(options["export_format"])
    if options["export"] is None:
        raise InputError(f"--format {wanted}: {_OF_AN_EXPORT}")
    if wanted is ExportFormat.PARQUET:
        check_parquet()
    return wanted


def _format_named(name: Any) -> ExportFormat:
    known = [one.value for one in ExportFormat]
    if name not in known:
        raise InputError(f"--format {given.shown(name)}: give one of {', '.join(known)}")
    return ExportFormat(name)


_OF_AN_EXPORT = "is of an export; say where to, with --export FOLDER"
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
    """Removes what is over."""

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
        """As a batch: written to the export first, if there is to be one, then removed."""
        seen = self.resources.store.processes.briefs([result.process for result in results])
        awaited = self.resources.store.schedules.awaited()
        ours = [
            seen[one.process]
            for one in results
            if one.process in seen and described(seen[one.process]) == one.before and one.process not in awaited
        ]
        try:
            # Before it is exported: what is live is as it should be, and no export would take it.
            live = self.resources.store.removals.live([process.id for process in ours])
            ours = [process for process in ours if process.id not in live]
            export, unfit = self._export(operation, ours)
            gone = remove(self.resources, [process for process in ours if process.id not in unfit])
            if export is not None:
                self._take_out(export, [process.id for process in ours if process.id not in gone])
        except Exception as error:
            if is_of_servers(error):
                raise
            return [ended(one, ResultState.ERROR, seen.get(one.process), in_a_line(error)) for one in results]
        return [
            ended(one, ResultState.ERROR, seen[one.process], _UNFIT.format(unfit[one.process]))
            if one.process in unfit
            else _ended(one, seen.get(one.process), gone)
            for one in results
        ]

    def _export(self, operation: Operation, processes: Sequence[Process]) -> Exported:
        """Write those of these processes to a file that are not being removed already: they were written before that,
        and are not whole any more."""
        if operation.export is None:
            return NOTHING
        begun = being_removed(self.resources, processes)
        whole = [process.id for process in processes if process.id not in begun]
        return append(self.resources, operation, whole) if whole else NOTHING

    def _take_out(self, export: Path, process_ids: Sequence[str]) -> None:
        """Take those of these processes out of the export that stay: done again since they were written there, say. Of
        those that somebody else removes or has removed just now, what was written may be all that is left."""
        there = self.resources.store.processes.briefs(process_ids)
        stay = there.keys() - being_removed(self.resources, there.values())
        if not stay:
            return
        try:
            take_out(export, stay)
        except (OSError, InputError) as error:
            log.warning(
                "%s has processes that were not removed, and may be different by now (%s): %s",
                export,
                error,
                ", ".join(sorted(stay)),
            )


def _is_old(process: Process, now: datetime) -> bool:
    at_rest = process.recovery_time is None and not process.redo and not process.marker_due
    return (
        process.state in ENDED_PROCESSES
        and at_rest
        and process.ended_at is not None
        and process.ended_at < now - LATELY
    )


def _ended(result: OperationResult, process: Process | None, gone: set[str]) -> OperationResult:
    if result.process in gone or (process is None and result.begun):
        return ended(result, ResultState.DONE, None)
    if process is None:
        return ended(result, ResultState.CHANGED, None, "somebody else removed it")
    return ended(result, ResultState.CHANGED, process, "it is no longer as it was planned, or something of it is live")
