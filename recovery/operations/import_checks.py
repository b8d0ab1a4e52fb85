"""Checks that a process from an export may be saved: it has ended, is at rest, and has valid fields.

An export file is untrusted. Scanners would find a live record and run whatever actor it names. An invalid id, name or
text would cause errors for everything that reads it. Only arguments and results are accepted without a check of their
meaning, because nothing shows what they should be.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, NoReturn, TypeVar

from recovery.errors import DamagedRecord, InputError
from recovery.limits import MAX_COUNT
from recovery.records import (
    ENDED_PROCESSES,
    Decision,
    DecisionState,
    Graph,
    Process,
    Task,
    from_document,
    given,
)
from recovery.records.ids import is_process_id, is_record_id, record_id
from recovery.records.record import Record
from recovery.records.search_names import decode_labels, encode_labels
from recovery.repair import judge
from recovery.rules import Snapshot, Surroundings
from recovery.store.views.process_exports import Whole

_EPOCHS = ("epoch", "importedEpoch", "importedAs")
CLOCKS_DIFFER = timedelta(days=1)
"""Maximum difference between this database's clock and the clock of the database that wrote the export."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
R = TypeVar("R", bound=Record)


def check(whole: Whole, now: datetime) -> None:
    """Raise InputError, which names the process, the record and the field, unless the process may be saved."""
    try:
        _check(whole, now)
    except InputError as error:
        raise InputError(f"process {whole.id}: {error}") from None


def _check(whole: Whole, now: datetime) -> None:
    if whole.graph is None:
        raise InputError("it has no graph")
    process, graph = _decoded(Process, whole.process), _decoded(Graph, whole.graph)
    tasks = _by_id(Task, whole.tasks)
    decisions = _by_id(Decision, whole.decisions)
    _check_at_rest(process, graph, decisions)
    for record in whole.records:
        if isinstance(epoch := record.get("epoch"), float):
            raise InputError(f"record {record['_id']}: its epoch is {given.shown(epoch)}, not a whole number")
    _check_epochs(process, graph, [*tasks.values(), *decisions.values()], now)
    _check_names(process)
    _check_task_ids(process, graph, tasks, decisions)
    for description, text in _json_texts(process, tasks.values(), decisions.values()):
        _check_json(description, text)
    _check_by_rules(process, graph, tasks, decisions)


def _decoded(kind: type[R], document: Mapping[str, Any]) -> R:
    try:
        return from_document(kind, document)
    except DamagedRecord as error:
        raise InputError(str(error)) from None


def _by_id(kind: type[R], documents: Sequence[Mapping[str, Any]]) -> dict[str, R]:
    """Return {task id: record} of documents whose `_id` is known to belong to the process."""
    records = {document["_id"].partition("/")[2]: _decoded(kind, document) for document in documents}
    if len(records) < len(documents):
        raise InputError(f"one of its {kind.__name__} records occurs twice")
    return records


def _check_at_rest(process: Process, graph: Graph, decisions: Mapping[str, Decision]) -> None:
    if process.state not in ENDED_PROCESSES:
        _refuse("process", "state", f"is {process.state}; only finished and aborted processes can be read back")
    if process.redo or process.marker_due:
        _refuse("process", "redo" if process.redo else "markerDue", "is set, so it is not at rest")
    if graph.recovery_time is not None:
        _refuse("graph", "recoveryTime", "is set, so it is not at rest")
    if graph.not_finished and not graph.aborted:
        _refuse("graph", "notFinished", f"has tasks of a process that is {process.state}")
    if process.start_task not in decisions:
        _refuse("process", "startTask", f"is {given.shown(process.start_task)}, which has no decision")
    _check_ended(process, decisions)


def _check_ended(process: Process, decisions: Mapping[str, Decision]) -> None:
    for task, decision in decisions.items():
        if decision.state is not DecisionState.FINISHED:
            _refuse(f"decision {task}", "state", f"is {decision.state}, and the process is {process.state}")
        if decision.recovery_time is not None:
            _refuse(f"decision {task}", "recoveryTime", "is set, so it is not at rest")
        if decision.outcome is None:
            _refuse(f"decision {task}", "outcome", "is missing, and the decision is finished")
        if decision.outcome.value is None and decision.outcome.error is None:
            _refuse(f"decision {task}", "outcome", "has neither a value nor an error")


def _check_epochs(process: Process, graph: Graph, records: Iterable[Task | Decision], now: datetime) -> None:
    """Check epochs, and the counters that operators' actions increment.

    An epoch is such a counter, or the database's time in milliseconds when the process was read back. A greater epoch
    is refused, because it could never be replaced.
    """
    if graph.epoch != process.epoch:
        _refuse("graph", "epoch", f"is {graph.epoch}, and the process's is {process.epoch}")
    for record in records:
        if not 0 <= record.epoch <= process.epoch:
            record_name = f"{type(record).__name__} {record.task_id}"
            _refuse(record_name, "epoch", f"is {record.epoch}, and the process's is {process.epoch}")
    counters = {"epoch": process.epoch, "reopened": process.times_reopened, "version": graph.version}
    counters |= {"importedEpoch": process.imported_epoch or 0, "importedAs": process.imported_as or 0}
    for field, count in counters.items():
        maximum = round((now + CLOCKS_DIFFER).timestamp() * 1000) if field in _EPOCHS else MAX_COUNT
        if not 0 <= count <= maximum:
            _refuse("graph" if field == "version" else "process", field, f"is {count}, not 0 to {maximum:,}")


def _check_names(process: Process) -> None:
    """Check the fields whose values may be any text that a user could have given."""
    names = {"customId": process.custom_id, "formerCustomId": process.former_custom_id, "key": process.key}
    for field, name in names.items():
        if name is not None:
            given.text(name, f"its {field}")
    if process.replaced_by is not None and not is_process_id(process.replaced_by):
        _refuse("process", "replacedBy", f"is {given.shown(process.replaced_by)}, which is not a process id")
    labels = process.labels
    if not all("=" in label for label in labels) or encode_labels(decode_labels(labels)) != labels:
        _refuse("process", "labels", f"are {given.shown(labels)}, not sorted texts NAME=VALUE with unique names")


def _check_task_ids(
    process: Process, graph: Graph, tasks: Mapping[str, Task], decisions: Mapping[str, Decision]
) -> None:
    for place, task_ids in _task_ids(process, graph, tasks, decisions):
        for task in task_ids:
            if not is_record_id(record_id(process.id, task)):
                raise InputError(f"{place} has {given.shown(task)}, which is not a task id")


def _task_ids(
    process: Process, graph: Graph, tasks: Mapping[str, Task], decisions: Mapping[str, Decision]
) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield (place, task ids) for all task ids in the records' fields."""
    yield "redone tasks of its lives", chain.from_iterable(life.tasks for life in process.lives)
    for field in ("not_finished", "links", "finished", "failed", "restarted"):
        yield f"the graph's {field}", getattr(graph, field)
    yield "the graph's links", chain.from_iterable(graph.links.values())
    for task, record in tasks.items():
        parent = [record.parent] if record.parent is not None else []
        yield f"task {task}", chain(parent, record.deps, record.dependents, record.unlocks)
    for task, decision in decisions.items():
        assert decision.outcome is not None
        yield f"the outcome of decision {task}", decision.outcome.waits
        for child in decision.children:
            yield f"a child of decision {task}", chain([child.id], child.deps, child.dependents, child.unlocks)
        if (call := decision.call) is not None:
            parent = [call.parent] if call.parent is not None else []
            yield f"the call of decision {task}", chain(parent, call.deps, call.dependents, call.unlocks)


def _json_texts(
    process: Process, tasks: Iterable[Task], decisions: Iterable[Decision]
) -> Iterator[tuple[str, str | None]]:
    """Yield (description, text) of all fields that hold a JSON text."""
    for field in ("args", "result", "context"):
        yield f"its {field}", getattr(process, field)
    for task in tasks:
        yield f"the args of task {task.task_id}", task.args
        yield f"the context of task {task.task_id}", task.context
    for decision in decisions:
        assert decision.outcome is not None
        yield f"the value of decision {decision.task_id}", decision.outcome.value
        if decision.call is not None:
            yield f"the args of decision {decision.task_id}", decision.call.args
        for child in decision.children:
            yield f"the args of child {child.id}", child.args
            yield f"the context of child {child.id}", child.context


def _check_json(description: str, text: str | None) -> None:
    if text is None:
        return
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(f"{description} is not a valid JSON value: {str(error)[:100]}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{number} is too large for a number")
    return value


def _check_by_rules(
    process: Process, graph: Graph, tasks: Mapping[str, Task], decisions: Mapping[str, Decision]
) -> None:
    """Check that no rule of the failure map finds anything."""
    # The file's own time is replaced, because rules skip a graph that was touched recently.
    graph = graph.evolve(touched_at=_LONG_AGO)
    snapshot = Snapshot(process.id, process, graph, decisions, frozenset(tasks))
    for finding in judge([snapshot], Surroundings(now=datetime.now(UTC), margin=timedelta())):
        raise InputError(f"{finding.rule}: {finding.evidence}")


def _refuse(record_name: str, field: str, problem: str) -> NoReturn:
    raise InputError(f"{'' if record_name == 'process' else f'{record_name}: '}its {field} {problem}")
