"""Set idle timeout: give processes another idle timeout than the one they were started with.

For a running process the new timeout counts from now: it is scanned at the latest when the timeout has passed. A broken
process gets the new timeout for when it is restarted.

The process and its graph hold a copy each, and the process's copy counts. An attempt to set the timeout also updates
the graph, unless another operation has set a different timeout since.
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
"""Maximum attempts to update graphs that another operation changes at the same time."""


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
    missing="--idle-timeout is required for set_idle_timeout, for example 10m",
)


class SetIdleTimeout(Kind):
    """Sets the idle timeout of running and broken processes. The plan leaves out ended processes, because they are not
    scanned."""

    name = OperationKind.SET_IDLE_TIMEOUT
    options = (IDLE_TIMEOUT,)
    is_exclusive = False  # because it compares and sets a number that no other kind reads
    none = "each has ended, or has this idle timeout already"

    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        store, seconds = self.resources.store, _wanted(operation)
        at, processes = store.now(), store.processes.committed_briefs(process_ids)
        graphs = store.idle_timeouts.of_graphs(processes)
        results = [
            found(operation, process, _change_text(process, seconds), at).evolve(before=_described(process))
            for process in processes.values()
            if process.state in UNENDED_PROCESSES
            and {process.idle_timeout, _graph_timeout(graphs, process)} != {seconds}
        ]
        return Planned(results, totals_of(results, processes=len(processes)))

    def together(self, operation: Operation, results: Sequence[OperationResult]) -> list[OperationResult]:
        store, seconds = self.resources.store, _wanted(operation)
        # Read before the processes, so that no graph holds a value set by a later operation.
        graphs = store.idle_timeouts.of_graphs([result.process for result in results])
        seen = store.processes.briefs([result.process for result in results])
        matching = {
            result.process: seen[result.process]
            for result in results
            if result.process in seen and _is_as_planned(result, seen[result.process], seconds)
        }
        for alike in _grouped_by_text(
            matching, {process_id: _described(process) for process_id, process in matching.items()}
        ):
            store.idle_timeouts.set_processes(matching[alike[0]], alike, seconds)
        updated = self._set_graphs(graphs, matching, seconds)
        graphs_after = store.idle_timeouts.of_graphs(matching)
        return [
            _ended(result, updated.get(result.process), seconds, graphs_after)
            if result.process in matching
            else _changed(result, seen.get(result.process))
            for result in results
        ]

    def failed(self, operation: Operation, result: OperationResult, error: str) -> OperationResult:  # noqa: ARG002
        return result.evolve(state=ResultState.ERROR, error=error)

    def _set_graphs(self, graphs: Mapping[str, Any], process_ids: Iterable[str], seconds: float) -> dict[str, Process]:
        """Update the graphs whose processes have the timeout that we set. Return the processes as they were last
        read."""
        store = self.resources.store
        for _ in range(ROUNDS):
            processes = store.processes.briefs(process_ids)
            outdated = {
                process_id: graphs[process_id]
                for process_id, process in processes.items()
                if process.idle_timeout == seconds != graphs.get(process_id, seconds)
            }
            if not outdated:
                break
            for alike in _grouped_by_text(
                outdated, {process_id: repr(value) for process_id, value in outdated.items()}
            ):
                store.idle_timeouts.set_graphs(outdated[alike[0]], alike, seconds)
            graphs = store.idle_timeouts.of_graphs(outdated)
        return processes


def _wanted(operation: Operation) -> float:
    assert operation.idle_timeout is not None, "checked when it was asked for"
    return operation.idle_timeout


def _described(process: Process) -> str:
    return f"{described(process)}, idle timeout {show_duration(process.idle_timeout)}"


def _change_text(process: Process, seconds: float) -> str:
    condition = " once it is restarted" if process.state is ProcessState.BROKEN else ""
    return f"idle timeout {show_duration(process.idle_timeout)} → {show_duration(seconds)}{condition}"


def _graph_timeout(graphs: Mapping[str, Any], process: Process) -> float | None:
    """Return the idle timeout in a process's graph. Without a graph it is the process's own; None if it is not a
    number."""
    timeout = graphs.get(process.id, process.idle_timeout)
    return timeout if isinstance(timeout, int | float) else None


def _is_as_planned(result: OperationResult, process: Process, seconds: float) -> bool:
    """Return whether the process is as planned, or an interrupted attempt has set its timeout, and perhaps not its
    graph's."""
    return _described(process) == result.before or bool(result.begun and process.idle_timeout == seconds)


def _grouped_by_text(process_ids: Iterable[str], texts: Mapping[str, str]) -> list[list[str]]:
    """Group these process ids by text. Each group is written with one update."""
    groups: dict[str, list[str]] = {}
    for process_id in process_ids:
        groups.setdefault(texts[process_id], []).append(process_id)
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
    final = ended(result, ResultState.DONE, process).evolve(after=_described(process))
    if graphs.get(result.process, seconds) != seconds:
        return final.evolve(state=ResultState.ERROR, error="its graph could not be changed: `recovery check` shows why")
    return final
