"""Ends processes: finished with the start task's value, or broken with an error.

The caller clears the graph's deadline after the process has ended, never before (`Store.clear_graph_deadlines`, for
many at once). If this is cut off in between, the graph becomes overdue, and its process is found ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from recovery import tracing
from recovery.engine.actors.resolve import NotReady, gather, text_size, values_of
from recovery.engine.end.breaking import break_process, lift_marker
from recovery.engine.isolation import tell
from recovery.engine.resources import Resources
from recovery.errors import DamagedRecord, TooLarge
from recovery.metrics.registry import count_ended
from recovery.records import ErrorInfo, Outcome, Process, ProcessState, values
from recovery.records.ids import START_TASK, is_process_id, record_id, split_record_id, started_at
from recovery.store import portions

Known = Mapping[str, Outcome]
"""Outcomes by task id that need not be read."""

_TOO_DEEP = ErrorInfo(
    kind="NotEncodable",
    message="the result of the process is nested too deep: values promise values in each other; return a flat one",
)
TOGETHER_BYTES = 1024 * 1024
"""Maximum total bytes of the results that one update writes. A larger result is written alone."""
SMALL = 4096
"""Maximum bytes of a result that fits into its process's record whatever the size of the arguments."""


@dataclass(frozen=True, slots=True)
class Complete:
    """A process without open tasks: its epoch, and the outcomes that are known."""

    epoch: int
    known: Known = field(default_factory=dict)
    type: str | None = None
    """The process type, if `known` certainly covers all tasks and no task was restarted. Otherwise None."""

    @property
    def plain(self) -> str | None:
        """Return the start task's value as it was just accepted, if it promises no other value. Then it is the
        result."""
        outcome = self.known.get(START_TASK)
        if outcome is None or outcome.error is not None or outcome.waits:
            return None
        return outcome.value


def finish_process(resources: Resources, process_id: str, epoch: int) -> bool | None:
    """Call `finish_processes` for one process. Return whether it ended by this call, or None if it did not end."""
    return finish_processes(resources, {process_id: Complete(epoch)}).get(process_id)


def finish_processes(resources: Resources, complete: Mapping[str, Complete]) -> dict[str, bool]:
    """Finish processes without open tasks, with the start task's value: running → finished.

    A process breaks instead if its result, with all promised values, does not fit into its record. Each value fits into
    a record of its own, but the result combines them, next to the arguments. A process also breaks if a part of its
    result can't be read.

    Args:
        resources: Connections.
        complete: What is known of each process, by process id.

    Returns:
        Whether the process ended by this call (True) or before (False), by process id. Absent are processes that do not
        exist in this epoch, that were reopened just now, or that can't be read.
    """
    ended = _finish_unread(resources, complete)
    running: dict[str, tuple[Process, int]] = {}
    for key, (process, arguments) in resources.store.processes.ending(complete.keys() - ended).items():
        if process.epoch != complete[key].epoch:
            continue
        if process.state is ProcessState.RUNNING:
            running[key] = process, arguments
        else:
            ended[key] = False
    results: dict[str, str] = {}
    known = _known_values(resources, complete, [process for process, _ in running.values()])
    for key, (process, arguments) in running.items():
        try:
            max_bytes = values.MAX_BYTES - arguments
            plain = complete[key].plain
            fits = plain is not None and len(plain.encode()) <= max_bytes
            result = plain if plain is not None and fits else _result(resources, process, max_bytes, known[key])
        except NotReady as error:
            tell(key, error)
        else:
            if isinstance(result, str):
                results[key] = result
            else:
                ended[key] = break_process(resources, key, process.epoch, result)
    for page in portions({key: len(text) for key, text in results.items()}, TOGETHER_BYTES):
        ended |= _finish(resources, {key: results[key] for key in page}, [running[key][0] for key in page])
    return ended


def _finish_unread(resources: Resources, complete: Mapping[str, Complete]) -> dict[str, bool]:
    """Finish processes whose results are known, by one update and without reading them, if there are at least two."""
    plain = {
        key: (process.type, process.plain)
        for key, process in complete.items()
        if process.type is not None and process.epoch == 0 and process.plain is not None and is_process_id(key)
    }
    results = {key: text for key, (_, text) in plain.items() if len(text.encode()) <= SMALL}
    if len(results) < 2:
        return {}
    processes = [Process(id=key, type=plain[key][0], args="", started_at=started_at(key)) for key in results]
    return _finish(resources, results, processes)


def _finish(resources: Resources, results: Mapping[str, str], processes: Iterable[Process]) -> dict[str, bool]:
    lives: dict[tuple[int, int | None], dict[str, Process]] = defaultdict(dict)
    for process in processes:
        if process.reopened:
            lift_marker(resources, process)
        lives[process.epoch, process.reopened][process.id] = process
    ended: dict[str, bool] = {}
    for (epoch, reopened), processes_by_id in lives.items():
        ends = resources.store.processes.finish({key: results[key] for key in processes_by_id}, epoch, reopened)
        count_ended(ProcessState.FINISHED, [processes_by_id[key] for key in ends.by_this])
        for _ in ends.by_this:
            tracing.event("process finished")
        ended |= {key: key in ends.by_this for key in ends.there}
    return ended


def _known_values(
    resources: Resources, complete: Mapping[str, Complete], running: Iterable[Process]
) -> dict[str, dict[str, Outcome]]:
    """Return the outcomes that make up each process's result, by process and task, as far as they are known or can be
    read for all at once."""
    starts = {process.id: process.start_task for process in running}
    known = {key: dict(complete[key].known) for key in starts}
    if len(starts) > 1:  # for a single process, `gather` needs no more queries
        _read_all(resources, known, {key: [start] for key, start in starts.items()})
        _read_all(
            resources, known, {key: known[key][start].waits for key, start in starts.items() if start in known[key]}
        )
    return known


def _read_all(
    resources: Resources, known: Mapping[str, dict[str, Outcome]], wanted: Mapping[str, Iterable[str]]
) -> None:
    keys = [record_id(key, task) for key, tasks in wanted.items() for task in tasks if task not in known[key]]
    for key, outcome in resources.store.decisions.known_outcomes(keys).items():
        process_id, task = split_record_id(key)
        known[process_id][task] = outcome


def _result(resources: Resources, process: Process, max_bytes: int, known: Known) -> str | ErrorInfo:
    """Return the start task's value as JSON, or the error for which there is none.

    A result larger than `max_bytes` is detected before it is built.

    Raises:
        NotReady: A value that the result needs is not there.
    """
    start = process.start_task
    try:
        outcomes = gather(resources.store, process.id, {start: None}, max_bytes, known)
        if text_size(values.promise_text(start), outcomes) > max_bytes:
            return too_large("result")
        return values.dump(values_of(process.id, outcomes)[start])
    except RecursionError:
        return _TOO_DEEP
    except TooLarge:
        return too_large("result")
    except DamagedRecord as damage:  # damaged since the tasks finished
        return ErrorInfo(kind="DamagedRecord", message=f"the result of the process can't be read: {damage}"[:500])


def too_large(what: str) -> ErrorInfo:
    """Return the error of a process whose records have outgrown MongoDB's document size. `what` names the record."""
    advice = "store the data elsewhere and pass its address, or split the process"
    return ErrorInfo(kind="TooLarge", message=f"the {what} of the process is over 16 MB: {advice}")
