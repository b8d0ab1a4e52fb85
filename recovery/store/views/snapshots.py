"""Reads of all records of some processes, for the rules.

A page of processes takes four queries, three more if some are broken, and one more if some are marked. All snapshots of
a page are in memory at once, so a page has fewer processes if they are large.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from pymongo.collection import Collection
from pymongo.database import Database

from recovery.errors import DamagedRecord
from recovery.records import Decision, DecisionState, Graph, Process, ProcessState, mark_of
from recovery.records.ids import SEPARATOR, split_record_id
from recovery.rules import Snapshot
from recovery.store import definitions, schema
from recovery.store.client import Document
from recovery.store.expressions import record_range, record_ranges
from recovery.store.operators.command_records import ProcessOrders
from recovery.store.record_reading import (
    DECISION_FIELDS,
    PROCESS_FIELDS,
    Read,
    children_of,
    decision_of,
    process_of,
    read,
    wrong_types,
)

NO_VALUE: Document = {
    "state": DecisionState.FINISHED.value,
    "outcome.error": None,
    "outcome.value": {"$not": {"$type": "string"}},
}
"""Filter of decisions that finished without an error but have no value."""
NO_RESULT: Document = {"state": ProcessState.FINISHED.value, "result": {"$not": {"$type": "string"}}}
"""Filter of finished processes that have no result."""
ID_ONLY = {"_id": True}
Concern = Callable[[Collection[Document]], Collection[Document]]
"""The concern for reads: `current` or `committed` of `concerns`."""


def load(
    database: Database[Document],
    process_ids: Sequence[str],
    concern: Concern,
    most: int | None = None,
    thorough: Container[str] = (),
) -> list[Snapshot]:
    """Return snapshots of these processes in the order given, without values, arguments, links and stacks.

    Uses the ranges of index `_id_`.

    Args:
        database: The database.
        process_ids: The processes.
        concern: Concern for all reads except orders, which are read with read concern majority.
        most: Maximum number of children of all decisions. Above it, fewer processes are returned, but at least one.
            Children of a decision that is not applied are in no graph, so their number is not known in advance.
        thorough: Processes whose omitted fields are checked for damage as well.
    """
    in_processes = record_ranges(process_ids)
    if not process_ids:
        return []
    # Tasks first and the graph last, because records are written before the graph names them. With hints, because
    # MongoDB would otherwise plan each of the ranges separately, which takes as long again.
    tasks = _tasks(concern(database[schema.TASKS]).find(in_processes, ID_ONLY).hint("_id_").to_list())
    documents = concern(database[schema.DECISIONS]).find(in_processes, DECISION_FIELDS).hint("_id_").sort("_id", 1)
    decisions, damaged, unread = _by_process(documents, most)
    loaded_ids = [
        process_id for process_id in process_ids if unread is None or process_id + SEPARATOR < unread + SEPARATOR
    ]
    graphs, processes, listed, damaged_wholes = _with_interruptions(database, loaded_ids, concern)
    marks = {process.id: mark_of(process) for process in processes.values() if _is_marked(process)}
    orders = ProcessOrders(database[schema.ORDERS]).standing(marks.values())
    checked_ids = [process_id for process_id in loaded_ids if process_id in thorough]
    damaged_by_process = _spoilt([*damaged_wholes, *damaged, *_hidden(database, checked_ids, concern)])
    return [
        Snapshot(
            process_id=process_id,
            process=processes.get(process_id),
            graph=graphs.get(process_id),
            decisions=decisions.get(process_id, {}),
            tasks=frozenset(tasks[process_id]),
            damaged=tuple(damaged_by_process[process_id]),
            listed=listed.get(process_id),
            ordered=process_id in orders or not _is_marked(processes.get(process_id)),
        )
        for process_id in loaded_ids
    ]


def _is_marked(process: Process | None) -> bool:
    return process is not None and process.is_marked


def _tasks(keys: Iterable[Document]) -> dict[str, list[str]]:
    """Return the names of tasks with a Task record, by process id."""
    tasks: dict[str, list[str]] = defaultdict(list)
    for document in keys:
        process_id, task = split_record_id(document["_id"])
        tasks[process_id].append(task)
    return tasks


def _spoilt(damaged: Iterable[DamagedRecord]) -> dict[str, list[DamagedRecord]]:
    """Return the damaged records by process id, each record once."""
    damaged_by_process: dict[str, list[DamagedRecord]] = defaultdict(list)
    for damage in _once(damaged):
        damaged_by_process[split_record_id(damage.record)[0]].append(damage)
    return damaged_by_process


def _with_interruptions(
    database: Database[Document], process_ids: Sequence[str], concern: Concern
) -> tuple[dict[str, Graph], dict[str, Process], dict[str, dict[str, float]], list[DamagedRecord]]:
    """Return graphs and processes by id, the listed tasks of broken processes, and damaged records."""
    graphs, processes = _whole(database, process_ids, concern)
    graph_of = {graph.id: graph for graph in graphs.records}
    process_of = {process.id: process for process in processes.records}
    listed: dict[str, dict[str, float]] = {}
    if broken := [process.id for process in processes.records if process.state is ProcessState.BROKEN]:
        listed = interrupted(database, broken, concern)
        # Read broken processes again after their list: tasks that were restarted in between are no longer listed.
        reread = _whole(database, broken, concern)
        graph_of |= {graph.id: graph for graph in reread[0].records}
        process_of |= {process.id: process for process in reread[1].records}
    return graph_of, process_of, listed, [*processes.damaged, *graphs.damaged]


def _whole(
    database: Database[Document], process_ids: Sequence[str], concern: Concern
) -> tuple[Read[Graph], Read[Process]]:
    """Return graphs and processes. The graphs are read first."""
    by_id = {"_id": {"$in": [*process_ids]}}
    graphs = read(Graph, concern(database[schema.GRAPHS]).find(by_id))
    return graphs, read(Process, concern(database[schema.PROCESSES]).find(by_id, PROCESS_FIELDS), process_of)


def interrupted(
    database: Database[Document], process_ids: Sequence[str], concern: Concern
) -> dict[str, dict[str, float]]:
    """Return {process id: {task listed as interrupted: its `restarts`}} for all of these processes.

    Index `_id`, one range per process. A damaged `restarts` counts as infinite, because no other failure replaces it.
    """
    listed: dict[str, dict[str, float]] = {process_id: {} for process_id in process_ids}
    if not listed:
        return listed
    in_processes = record_ranges(process_ids)
    for document in concern(database[schema.INTERRUPTIONS]).find(in_processes, {"restarts": True}).hint("_id_"):
        process_id, task = split_record_id(document["_id"])
        restarts = document.get("restarts", 0)
        listed[process_id][task] = restarts if isinstance(restarts, int | float) else math.inf
    return listed


def _hidden(database: Database[Document], process_ids: Sequence[str], concern: Concern) -> Iterator[DamagedRecord]:
    """Yield damage in tasks and in the fields that snapshots leave out."""
    if not process_ids:
        return
    in_processes = {"$or": [*map(record_range, process_ids), {"_id": {"$in": [*process_ids]}}]}
    for name in schema.OF_PROCESSES:
        wrong = {"$or": wrong_types(definitions.KINDS[name])}
        for document in concern(database[name]).find({"$and": [in_processes, wrong]}).hint("_id_"):
            yield from read(definitions.KINDS[name], [document]).damaged
    for document in concern(database[schema.DECISIONS]).find({"$and": [in_processes, NO_VALUE]}, ID_ONLY).hint("_id_"):
        key = document["_id"]
        message = f"Decision {key}: it is finished, with neither a value that can be read nor an error"
        yield DamagedRecord(key, message, ("outcome.value",), Decision.__name__)
    by_id = {"_id": {"$in": [*process_ids]}}
    for document in concern(database[schema.PROCESSES]).find({**by_id, **NO_RESULT}, ID_ONLY).hint("_id_"):
        key = document["_id"]
        yield DamagedRecord(key, f"Process {key}: it is finished, and has no result", ("result",), Process.__name__)


def _once(damaged: Iterable[DamagedRecord]) -> Iterable[DamagedRecord]:
    """Return one DamagedRecord per record: that with the most fields."""
    by_record: dict[tuple[str, str], DamagedRecord] = {}
    for damage in damaged:
        key = (damage.record, damage.kind)
        if key not in by_record or len(damage.fields) > len(by_record[key].fields):
            by_record[key] = damage
    return by_record.values()


def _by_process(
    documents: Iterable[Document], max_children: int | None
) -> tuple[dict[str, dict[str, Decision]], list[DamagedRecord], str | None]:
    """Group decisions by process, and stop after `max_children` children.

    Args:
        documents: Documents in order of id.
        max_children: Maximum number of children. The first process is always complete.

    Returns:
        Decisions by process id and task, damaged decisions, and the first process that was not read (None if all were).
    """
    decisions: dict[str, dict[str, Decision]] = defaultdict(dict)
    damaged: list[DamagedRecord] = []
    children, first = 0, None
    for document in documents:
        process_id, task = split_record_id(document["_id"])
        first = first or process_id
        children += len(children_of(document))
        if max_children is not None and children > max_children and process_id != first:
            return decisions, damaged, process_id
        try:
            decisions[process_id][task] = decision_of(document)
        except DamagedRecord as damage:
            damaged.append(damage)
    return decisions, damaged, None
