"""The end of a process: finished with its start task's value, or broken with an error.

The graph's deadline is cleared after the process has ended, never before (`Store.clear_graph_deadlines`, by the caller,
for many at once): cut off in between, the graph is looked at again, and its process found ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from recovery import tracing
from recovery.engine.actors.resolve import NotReady, gather, text_size, values_of
from recovery.engine.end.breaking import break_process
from recovery.engine.end.marking import lift_marker
from recovery.engine.resources import Resources
from recovery.engine.steps import Ended
from recovery.errors import DamagedRecord, TooLarge
from recovery.metrics import counting
from recovery.records import ErrorInfo, Outcome, Process, ProcessState, values
from recovery.records.ids import record_id, split_record_id
from recovery.store import GraphView

_TOO_DEEP = ErrorInfo(
    kind="NotEncodable",
    message="the result of the process is nested too deep: values promise values in each other; return a flat one",
)
SMALL = 4096
"""Bytes of a result that is written with others'."""


@dataclass(frozen=True, slots=True)
class Complete:
    """A graph that is complete now, and the decisions by which it is."""

    together: Sequence[Ended]
    view: GraphView

    @property
    def process_id(self) -> str:
        return self.together[0].process_id


def finish_many(resources: Resources, complete: Sequence[Complete]) -> set[str]:
    """`finish_process` of several at once, as long as all is plain: never done again or reopened, with a small result.
    Which are over, by this or before; the others are to be finished each by itself."""
    store = resources.store
    counts = store.decisions.counts([one.process_id for one in complete if not are_all(one.together)])
    whole = [one for one in complete if counts.get(one.process_id, 0) <= one.view.finished and not one.view.epoch]
    found = store.process_batches.ending([one.process_id for one in whole]) if whole else {}
    plain = {key: process for key, process in found.items() if not (process.epoch or process.reopened)}
    over = {key for key, process in plain.items() if process.state is not ProcessState.RUNNING}
    run = {key: process for key, process in plain.items() if key not in over}
    kept = {one.process_id: known_values(one.together) for one in complete if one.process_id in run}
    _read_all(resources, kept, {key: [one.start_task] for key, one in run.items()})
    promised = {key: kept[key][one.start_task].waits for key, one in run.items() if one.start_task in kept[key]}
    _read_all(resources, kept, promised)
    results: dict[str, str] = {}
    for key, process in run.items():
        try:
            results[key] = _result(resources, process, SMALL, kept[key])
        except (RecursionError, TooLarge, DamagedRecord, NotReady):
            continue  # by itself it is told, or the process broken for it
    if results:
        ends = store.process_batches.finish(results)
        counting.ended(ProcessState.FINISHED, [run[key] for key in ends.by_this])
        over |= ends.there
    return over


def _read_all(
    resources: Resources, kept: Mapping[str, dict[str, Outcome]], wanted: Mapping[str, Iterable[str]]
) -> None:
    """Have {process: {task: its outcome}} of these tasks as well, as far as that can be read for all at once."""
    keys = [record_id(key, task) for key, tasks in wanted.items() for task in tasks if task not in kept[key]]
    for key, outcome in resources.store.decisions.known_outcomes(keys).items():
        process_id, task = split_record_id(key)
        kept[process_id][task] = outcome


def known_values(together: Sequence[Ended]) -> dict[str, Outcome]:
    """{task: its outcome}, of those whose values are at hand."""
    outcomes = {ended.decision.task_id: ended.decision.outcome for ended in together}
    return {task: one for task, one in outcomes.items() if one is not None and one.value is not None}


def are_all(together: Sequence[Ended]) -> bool:
    """Whether these are all the tasks of their process, for certain."""
    scheduled = {child.id for ended in together for child in ended.decision.children}
    scheduled |= {ended.task.task_id for ended in together if ended.task.parent is None}
    return scheduled == {ended.task.task_id for ended in together}


def finish_process(
    resources: Resources, process_id: str, epoch: int, known: Mapping[str, Outcome] | None = None
) -> bool | None:
    """running → finished with the start task's value; False if it had ended before, None if there is none in this
    epoch. Outcomes `known` are not read.

    Broken instead, where the value with all that it promises is more than one record holds. Each of its parts
    could be kept, and only here are they together; the arguments are in the same record. And where one of them can't be
    read.
    """
    found = resources.store.processes.ending(process_id)
    if found is None or found[0].epoch != epoch:
        return None
    process, arguments = found
    ended = False
    if process.state is ProcessState.RUNNING:
        try:
            text = _result(resources, process, values.MAX_BYTES - arguments, known)
        except RecursionError:
            return break_process(resources, process_id, epoch, _TOO_DEEP)
        except TooLarge:
            return break_process(resources, process_id, epoch, too_large("result"))
        except DamagedRecord as damage:
            return break_process(resources, process_id, epoch, _unreadable(damage))
        if process.reopened:
            lift_marker(resources, process)
        ended = resources.store.processes.finish(process_id, epoch, text)
    if ended:
        counting.ended(ProcessState.FINISHED, [process])
        tracing.event("process finished")
    return ended


def lacks_tasks(resources: Resources, process_id: str, finished: int) -> bool:
    """Whether a process has more tasks than its graph has as `finished`: then somebody spoilt the graph, and its end
    would hide them. Reads nothing but an index."""
    return resources.store.decisions.count(process_id) > finished


def _result(resources: Resources, process: Process, most: int, known: Mapping[str, Outcome] | None) -> str:
    """The start task's value as JSON. Raises TooLarge, over `most` bytes, before it is made, RecursionError, and
    DamagedRecord."""
    start = process.start_task
    outcomes = gather(resources.store, process.id, {start: None}, most, known)
    if text_size(values.promise_text(start), outcomes) > most:
        raise TooLarge(f"process {process.id}: its result is over {most:,} bytes")
    return values.dump(values_of(process.id, outcomes)[start])


def _unreadable(damage: DamagedRecord) -> ErrorInfo:
    """Why a process has no result that its tasks have come to: a record of it was spoilt since."""
    return ErrorInfo(kind="DamagedRecord", message=f"the result of the process can't be read: {damage}"[:500])


def too_large(what: str) -> ErrorInfo:
    """Why a process can't go on whose records have outgrown MongoDB's documents."""
    advice = "store the data elsewhere and pass its address, or split the process"
    return ErrorInfo(kind="TooLarge", message=f"the {what} of the process is over 16 MB: {advice}")
