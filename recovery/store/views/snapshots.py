"""All records of some processes, read for the rules. Four queries for a page of processes, whose snapshots are held in
memory at once: so a page has fewer processes where they are large. Three more where some are broken, and one where
some are marked."""

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
"""Matches a decision that ended well and has no value."""
NO_RESULT: Document = {"state": ProcessState.FINISHED.value, "result": {"$not": {"$type": "string"}}}
"""Matches a process that is finished and has no result."""
ID_ONLY = {"_id": True}
Concern = Callable[[Collection[Document]], Collection[Document]]
"""How records are read: `current` or `committed` of `concerns`."""


def load(
    database: Database[Document],
    process_ids: Sequence[str],
    concern: Concern,
    most: int | None = None,
    thorough: Container[str] = (),
) -> list[Snapshot]:
    """Snapshots of these processes, in the order given. Values, arguments, links and stacks are left out.

    Of some of them only, one at least, where their decisions together have more than `most` children: those of a
    decision that is not applied are in no graph, and nobody knows before how many they are. Of those that are in
    `thorough` damage is looked for in what is left out, too.
    """
    of_them = record_ranges(process_ids)
    if not process_ids:
        return []
    # Tasks first and the graph last: what the graph names was written before. With hints, since without one the server
    # plans each of a hundred ranges by itself, which takes as long again.
    tasks = _tasks(concern(database[schema.TASKS]).find(of_them, ID_ONLY).hint("_id_").to_list())
    found = concern(database[schema.DECISIONS]).find(of_them, DECISION_FIELDS).hint("_id_").sort("_id", 1)
    decisions, damaged, unread = _by_process(found, most)
    wanted = [one for one in process_ids if unread is None or one + SEPARATOR < unread + SEPARATOR]
    graphs, processes, listed, spoilt_whole = _with_interruptions(database, wanted, concern)
    marks = {one.id: mark_of(one) for one in processes.values() if _is_marked(one)}
    ordered = ProcessOrders(database[schema.ORDERS]).standing(marks.values())
    looked_into = [one for one in wanted if one in thorough]
    spoilt = _spoilt([*spoilt_whole, *damaged, *_hidden(database, looked_into, concern)])
    return [
        Snapshot(
            process_id=process_id,
            process=processes.get(process_id),
            graph=graphs.get(process_id),
            decisions=decisions.get(process_id, {}),
            tasks=frozenset(tasks[process_id]),
            damaged=tuple(spoilt[process_id]),
            listed=listed.get(process_id),
            ordered=process_id in ordered or not _is_marked(processes.get(process_id)),
        )
        for process_id in wanted
    ]


def _is_marked(process: Process | None) -> bool:
    return process is not None and process.is_marked


def _tasks(keys: Iterable[Document]) -> dict[str, list[str]]:
    """{process: its tasks that have a Task record}."""
    found: dict[str, list[str]] = defaultdict(list)
    for document in keys:
        process_id, task = split_record_id(document["_id"])
        found[process_id].append(task)
    return found


def _spoilt(damaged: Iterable[DamagedRecord]) -> dict[str, list[DamagedRecord]]:
    """{process: what of its records can't be read}, one for each record."""
    found: dict[str, list[DamagedRecord]] = defaultdict(list)
    for damage in _once(damaged):
        found[split_record_id(damage.record)[0]].append(damage)
    return found


def _with_interruptions(
    database: Database[Document], process_ids: Sequence[str], concern: Concern
) -> tuple[dict[str, Graph], dict[str, Process], dict[str, dict[str, float]], list[DamagedRecord]]:
    """Graphs and processes by id, what broken ones are listed for, and what can't be read."""
    graphs, processes = _whole(database, process_ids, concern)
    graph_of = {graph.id: graph for graph in graphs.records}
    process_of = {process.id: process for process in processes.records}
    listed: dict[str, dict[str, float]] = {}
    if broken := [process.id for process in processes.records if process.state is ProcessState.BROKEN]:
        listed = interrupted(database, broken, concern)
        # Once more, and after it: what was restarted until then is listed no longer.
        again = _whole(database, broken, concern)
        graph_of |= {graph.id: graph for graph in again[0].records}
        process_of |= {process.id: process for process in again[1].records}
    return graph_of, process_of, listed, [*processes.damaged, *graphs.damaged]


def _whole(
    database: Database[Document], process_ids: Sequence[str], concern: Concern
) -> tuple[Read[Graph], Read[Process]]:
    """Graphs and processes, in this order."""
    among = {"_id": {"$in": [*process_ids]}}
    graphs = read(Graph, concern(database[schema.GRAPHS]).find(among))
    return graphs, read(Process, concern(database[schema.PROCESSES]).find(among, PROCESS_FIELDS), process_of)


def interrupted(
    database: Database[Document], process_ids: Sequence[str], concern: Concern
) -> dict[str, dict[str, float]]:
    """{process: {task that is listed as interrupted: its `restarts`}}, of all of these. Index `_id`, their ranges. What
    is listed with something else than a number is listed: nothing takes its place."""
    found: dict[str, dict[str, float]] = {process_id: {} for process_id in process_ids}
    if not found:
        return found
    of_them = record_ranges(process_ids)
    for document in concern(database[schema.INTERRUPTIONS]).find(of_them, {"restarts": True}).hint("_id_"):
        process_id, task = split_record_id(document["_id"])
        restarts = document.get("restarts", 0)
        found[process_id][task] = restarts if isinstance(restarts, int | float) else math.inf
    return found


def _hidden(database: Database[Document], process_ids: Sequence[str], concern: Concern) -> Iterator[DamagedRecord]:
    """What of a process's records is damaged where nobody looked: in tasks, and in what is left out."""
    if not process_ids:
        return
    of_them = {"$or": [*map(record_range, process_ids), {"_id": {"$in": [*process_ids]}}]}
    for name in schema.OF_PROCESSES:
        wrong = {"$or": wrong_types(definitions.KINDS[name])}
        for document in concern(database[name]).find({"$and": [of_them, wrong]}).hint("_id_"):
            yield from read(definitions.KINDS[name], [document]).damaged
    for document in concern(database[schema.DECISIONS]).find({"$and": [of_them, NO_VALUE]}, ID_ONLY).hint("_id_"):
        key = document["_id"]
        told = f"Decision {key}: it is finished, with neither a value that can be read nor an error"
        yield DamagedRecord(key, told, ("outcome.value",), Decision.__name__)
    among = {"_id": {"$in": [*process_ids]}}
    for document in concern(database[schema.PROCESSES]).find({**among, **NO_RESULT}, ID_ONLY).hint("_id_"):
        key = document["_id"]
        yield DamagedRecord(key, f"Process {key}: it is finished, and has no result", ("result",), Process.__name__)


def _once(damaged: Iterable[DamagedRecord]) -> Iterable[DamagedRecord]:
    """One for each record, with the most of its fields."""
    by_record: dict[tuple[str, str], DamagedRecord] = {}
    for damage in damaged:
        key = (damage.record, damage.kind)
        if key not in by_record or len(damage.fields) > len(by_record[key].fields):
            by_record[key] = damage
    return by_record.values()


def _by_process(
    found: Iterable[Document], most: int | None
) -> tuple[dict[str, dict[str, Decision]], list[DamagedRecord], str | None]:
    """{process: its decisions} of documents in order; those that can't be read; and from which process on they were not
    read, if from one."""
    decisions: dict[str, dict[str, Decision]] = defaultdict(dict)
    damaged: list[DamagedRecord] = []
    children, first = 0, None
    for document in found:
        process_id, task = split_record_id(document["_id"])
        first = first or process_id
        children += len(children_of(document))
        if most is not None and children > most and process_id != first:
            return decisions, damaged, process_id
        try:
            decisions[process_id][task] = decision_of(document)
        except DamagedRecord as damage:
            damaged.append(damage)
    return decisions, damaged, None
