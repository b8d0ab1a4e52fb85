"""The end of a process: finished with its start task's value, or broken with an error.

The graph's deadline is cleared after the process has ended, never before (`Store.clear_graph_deadlines`, by the caller,
for many at once): cut off in between, the graph is looked at again, and its process found ended.
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
"""{task: its outcome}, which need not be read."""

_TOO_DEEP = ErrorInfo(
    kind="NotEncodable",
    message="the result of the process is nested too deep: values promise values in each other; return a flat one",
)
TOGETHER_BYTES = 1024 * 1024
"""Of results that are written by one update; a larger one is written by itself."""
SMALL = 4096
"""Bytes of a result that fits into its process's record, whatever arguments are there."""


@dataclass(frozen=True, slots=True)
class Complete:
    """A process of which nothing is open: its epoch, and what is known of it."""

    epoch: int
    known: Known = field(default_factory=dict)
    type: str | None = None
    """If it is known that these are all of its tasks, and that none of them was done before."""

    @property
    def plain(self) -> str | None:
        """The start task's value as it was accepted just now, if it promises nothing: that is the result."""
        outcome = self.known.get(START_TASK)
        if outcome is None or outcome.error is not None or outcome.waits:
            return None
        return outcome.value


def finish_process(resources: Resources, process_id: str, epoch: int) -> bool | None:
    """`finish_processes` of one: whether it has ended by this, or None."""
    return finish_processes(resources, {process_id: Complete(epoch)}).get(process_id)


def finish_processes(resources: Resources, complete: Mapping[str, Complete]) -> dict[str, bool]:
    """running → finished with the start task's value, for processes of which nothing is open.

    A process breaks instead where its value, with all that it promises, is more than one record holds: each part could
    be kept, and only here are they together, with the arguments in the same record. It also breaks where one of the
    parts can't be read.

    Args:
        resources: Connections.
        complete: {process: what is known of it}.

    Returns:
        {process: whether it has ended by this; False if it had ended before}. Not among them is one that is not there
        in this epoch, was reopened just now, or can't be read.
    """
    over = _finish_unread(resources, complete)
    running: dict[str, tuple[Process, int]] = {}
    for key, (process, arguments) in resources.store.processes.ending(complete.keys() - over).items():
        if process.epoch != complete[key].epoch:
            continue
        if process.state is ProcessState.RUNNING:
            running[key] = process, arguments
        else:
            over[key] = False
    results: dict[str, str] = {}
    known = _known_values(resources, complete, [process for process, _ in running.values()])
    for key, (process, arguments) in running.items():
        try:
            most = values.MAX_BYTES - arguments
            plain = complete[key].plain
            fits = plain is not None and len(plain.encode()) <= most
            result = plain if plain is not None and fits else _result(resources, process, most, known[key])
        except NotReady as error:
            tell(key, error)
        else:
            if isinstance(result, str):
                results[key] = result
            else:
                over[key] = break_process(resources, key, process.epoch, result)
    for some in portions({key: len(text) for key, text in results.items()}, TOGETHER_BYTES):
        over |= _finish(resources, {key: results[key] for key in some}, [running[key][0] for key in some])
    return over


def _finish_unread(resources: Resources, complete: Mapping[str, Complete]) -> dict[str, bool]:
    """The same of those of several of which all is known: by one update, without a look at them."""
    plain = {
        key: (one.type, one.plain)
        for key, one in complete.items()
        if one.type is not None and one.epoch == 0 and one.plain is not None and is_process_id(key)
    }
    results = {key: text for key, (_, text) in plain.items() if len(text.encode()) <= SMALL}
    if len(results) < 2:
        return {}
    made = [Process(id=key, type=plain[key][0], args="", started_at=started_at(key)) for key in results]
    return _finish(resources, results, made)


def _finish(resources: Resources, results: Mapping[str, str], processes: Iterable[Process]) -> dict[str, bool]:
    lives: dict[tuple[int, int | None], dict[str, Process]] = defaultdict(dict)
    for process in processes:
        if process.reopened:
            lift_marker(resources, process)
        lives[process.epoch, process.reopened][process.id] = process
    over: dict[str, bool] = {}
    for (epoch, reopened), alike in lives.items():
        ends = resources.store.processes.finish({key: results[key] for key in alike}, epoch, reopened)
        count_ended(ProcessState.FINISHED, [alike[key] for key in ends.by_this])
        for _ in ends.by_this:
            tracing.event("process finished")
        over |= {key: key in ends.by_this for key in ends.there}
    return over


def _known_values(
    resources: Resources, complete: Mapping[str, Complete], running: Iterable[Process]
) -> dict[str, dict[str, Outcome]]:
    """{process: the outcomes that its result is made of}, as far as they are known, or can be read for all at once."""
    starts = {process.id: process.start_task for process in running}
    known = {key: dict(complete[key].known) for key in starts}
    if len(starts) > 1:  # one reads by itself what it needs, by as few queries
        _read_all(resources, known, {key: [start] for key, start in starts.items()})
        _read_all(resources, known, {key: known[key][one].waits for key, one in starts.items() if one in known[key]})
    return known


def _read_all(
    resources: Resources, known: Mapping[str, dict[str, Outcome]], wanted: Mapping[str, Iterable[str]]
) -> None:
    keys = [record_id(key, task) for key, tasks in wanted.items() for task in tasks if task not in known[key]]
    for key, outcome in resources.store.decisions.known_outcomes(keys).items():
        process_id, task = split_record_id(key)
        known[process_id][task] = outcome


def _result(resources: Resources, process: Process, most: int, known: Known) -> str | ErrorInfo:
    """The start task's value as JSON; or why there is none, such as that it is over `most` bytes, which is known before
    it is made. Raises NotReady."""
    start = process.start_task
    try:
        outcomes = gather(resources.store, process.id, {start: None}, most, known)
        if text_size(values.promise_text(start), outcomes) > most:
            return too_large("result")
        return values.dump(values_of(process.id, outcomes)[start])
    except RecursionError:
        return _TOO_DEEP
    except TooLarge:
        return too_large("result")
    except DamagedRecord as damage:  # spoilt since its tasks came to it
        return ErrorInfo(kind="DamagedRecord", message=f"the result of the process can't be read: {damage}"[:500])


def too_large(what: str) -> ErrorInfo:
    """Why a process can't go on whose records have outgrown MongoDB's documents."""
    advice = "store the data elsewhere and pass its address, or split the process"
    return ErrorInfo(kind="TooLarge", message=f"the {what} of the process is over 16 MB: {advice}")
