"""Another idle timeout for processes that were started already: each keeps the one of its start until somebody says so.

Of those that run it holds at once: they are looked at within it, from now, at the latest. Broken ones have it when they
are restarted. A process and its graph have a copy each, and the process's is the one that counts: who sets that brings
the graph's after it, and who finds that another one was set since leaves the graph to him.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recovery.engine import Resources
from recovery.errors import InputError
from recovery.operations.kinds.base import Kind, Option, Options, Planned, described, ended, found, totals_of
from recovery.records import (
    UNENDED_PROCESSES,
    Operation,
    OperationKind,
    OperationResult,
    Process,
    ProcessState,
    ProcessTypePreferences,
    ResultState,
    given,
)
from recovery.records.preferences import fits, wanted_value
from recovery.wording import show_duration

ROUNDS = 5
"""Tries at graphs that somebody else changes meanwhile, with another of these operations."""


def _read_idle_timeout(_: Resources, options: Options) -> float:
    seconds = options["idle_timeout"]
    if not fits(ProcessTypePreferences, "idle_timeout", seconds):
        wanted = wanted_value(ProcessTypePreferences, "idle_timeout")
        raise InputError(f"--idle-timeout{_shown(seconds)}: must be {wanted}")
    return float(seconds)


def _shown(seconds: Any) -> str:
    return f" {show_duration(seconds) if type(seconds) in (int, float) else given.shown(seconds)}"


IDLE_TIMEOUT = Option(
    "idle_timeout",
    "--idle-timeout",
    "is for set_idle_timeout; {kind} sets none",
    _read_idle_timeout,
    shown=_shown,
    missing="set_idle_timeout needs to be told which: give --idle-timeout, for example 10m",
)


class SetIdleTimeout(Kind):
    """Sets it for what runs or is broken; what has ended is not in the plan, since nobody looks at it."""

    name = OperationKind.SET_IDLE_TIMEOUT
    options = (IDLE_TIMEOUT,)
    is_exclusive = False  # it compares and sets a number that no other kind looks at
    none = "each has ended, or has this idle timeout already"

    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        store, seconds = self.resources.store, _wanted(operation)
        at, processes = store.now(), store.processes.committed_briefs(process_ids)
        graphs = store.idle_timeouts.of_graphs(processes)
        results = [
            found(operation, process, _told(process, seconds), at).evolve(before=_described(process))
            for process in processes.values()
            if process.state in UNENDED_PROCESSES and {process.idle_timeout, _comparable(graphs, process)} != {seconds}
        ]
        return Planned(results, totals_of(results, processes=len(processes)))

    def together(self, operation: Operation, results: Sequence[OperationResult]) -> list[OperationResult]:
        store, seconds = self.resources.store, _wanted(operation)
        # Before the processes: what a graph holds by then was not set by anybody who comes after us.
        graphs = store.idle_timeouts.of_graphs([result.process for result in results])
        seen = store.processes.briefs([result.process for result in results])
        ours = {
            result.process: seen[result.process]
            for result in results
            if result.process in seen and _is_as_planned(result, seen[result.process], seconds)
        }
        for alike in _alike(ours, {key: _described(process) for key, process in ours.items()}):
            store.idle_timeouts.set_processes(ours[alike[0]], alike, seconds)
        now = self._set_graphs(graphs, ours, seconds)
        left = store.idle_timeouts.of_graphs(ours)
        return [
            _ended(result, now.get(result.process), seconds, left)
            if result.process in ours
            else _changed(result, seen.get(result.process))
            for result in results
        ]

    def failed(self, operation: Operation, result: OperationResult, error: str) -> OperationResult:  # noqa: ARG002
        return result.evolve(state=ResultState.ERROR, error=error)

    def _set_graphs(self, graphs: Mapping[str, Any], ours: Iterable[str], seconds: float) -> dict[str, Process]:
        """Bring the graphs after their processes, as long as those have what we set; the processes as they are then."""
        store = self.resources.store
        for _ in range(ROUNDS):
            now = store.processes.briefs(ours)
            behind = {
                key: graphs[key] for key, one in now.items() if one.idle_timeout == seconds != graphs.get(key, seconds)
            }
            if not behind:
                break
            for alike in _alike(behind, {key: repr(value) for key, value in behind.items()}):
                store.idle_timeouts.set_graphs(behind[alike[0]], alike, seconds)
            graphs = store.idle_timeouts.of_graphs(behind)
        return now


def _wanted(operation: Operation) -> float:
    assert operation.idle_timeout is not None, "checked when it was asked for"
    return operation.idle_timeout


def _described(process: Process) -> str:
    return f"{described(process)}, idle timeout {show_duration(process.idle_timeout)}"


def _told(process: Process, seconds: float) -> str:
    then = " once it is restarted" if process.state is ProcessState.BROKEN else ""
    return f"idle timeout {show_duration(process.idle_timeout)} → {show_duration(seconds)}{then}"


def _comparable(graphs: Mapping[str, Any], process: Process) -> float | None:
    """What a process's graph holds, if it is a number; without a graph what the process does."""
    found = graphs.get(process.id, process.idle_timeout)
    return found if isinstance(found, int | float) else None


def _is_as_planned(result: OperationResult, process: Process, seconds: float) -> bool:
    """Whether it is to be set: as it was planned, or set already by somebody who was cut off before its graph."""
    return _described(process) == result.before or bool(result.begun and process.idle_timeout == seconds)


def _alike(items: Iterable[str], texts: Mapping[str, str]) -> list[list[str]]:
    """These in groups that are written together: those with the same text."""
    groups: dict[str, list[str]] = {}
    for key in items:
        groups.setdefault(texts[key], []).append(key)
    return [*groups.values()]


def _changed(result: OperationResult, process: Process | None) -> OperationResult:
    if process is None:
        return ended(result, ResultState.CHANGED, None, "the process is gone")
    now = _described(process)
    return ended(result, ResultState.CHANGED, process, f"planned as {result.before}, now {now}").evolve(after=now)


def _ended(
    result: OperationResult, process: Process | None, seconds: float, graphs: Mapping[str, Any]
) -> OperationResult:
    if process is None or process.idle_timeout != seconds:
        return _changed(result, process)
    done = ended(result, ResultState.DONE, process).evolve(after=_described(process))
    if graphs.get(result.process, seconds) != seconds:
        return done.evolve(state=ResultState.ERROR, error="its graph could not be changed: `recovery check` tells why")
    return done
