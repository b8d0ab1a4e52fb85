"""Processes with all of their records as JSON texts, a line for each, and back: what is kept of what is removed.

A line is an object `{"process": …, "graph": …, "tasks": […], "decisions": […]}` in MongoDB's relaxed Extended JSON:
times are `{"$date": "…"}`, all else is plain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bson.json_util import RELAXED_JSON_OPTIONS, dumps, loads
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from recovery.errors import InputError
from recovery.records.ids import split_record_id
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import record_range
from recovery.store.lifecycle.tasks import insert_missing

_OF_TASKS = {"tasks": schema.TASKS, "decisions": schema.DECISIONS}


@translated
class Exports:
    """Reads, as a majority has them, and writes whole processes."""

    def __init__(self, database: Database[Document]) -> None:
        self._told = {name: committed(database[name]) for name in schema.OF_PROCESSES}

    def lines(self, process_ids: Sequence[str]) -> Iterator[str]:
        """A line for each of these that is there, in the order given."""
        among = {"_id": {"$in": list(process_ids)}}
        processes = {one["_id"]: one for one in self._told[schema.PROCESSES].find(among)}
        graphs = {one["_id"]: one for one in self._told[schema.GRAPHS].find(among)}
        for key in process_ids:
            if key in processes:
                found: Document = {"process": processes[key], "graph": graphs.get(key)}
                for name, collection in _OF_TASKS.items():
                    found[name] = self._told[collection].find(record_range(key)).hint("_id_").to_list()
                yield dumps(found, json_options=RELAXED_JSON_OPTIONS)

    def insert(self, line: str) -> str | None:
        """Save the process of a line, itself last; its id, or None if it is there already.

        One whose custom id another has by now comes without it. Raises InputError for what is no such line.
        """
        found = _parsed(line)
        process, key = found["process"], found["process"]["_id"]
        if self._told[schema.PROCESSES].find_one({"_id": key}, {"_id": True}) is not None:
            return None
        for name, collection in _OF_TASKS.items():
            insert_missing(self._told[collection], found[name])
        insert_missing(self._told[schema.GRAPHS], [found["graph"]] if found["graph"] else [])
        try:
            self._told[schema.PROCESSES].insert_one(process)
        except DuplicateKeyError as error:
            if "customId" not in (error.details or {}).get("keyPattern", ()):
                return None
            process["formerCustomId"] = process.pop("customId")
            self._told[schema.PROCESSES].insert_one(process)
        return str(key)


def _parsed(line: str) -> dict[str, Any]:
    try:
        found = loads(line, json_options=RELAXED_JSON_OPTIONS.with_options(tz_aware=True))
    except (ValueError, TypeError) as error:
        raise InputError(f"it is no JSON: {error}") from None
    if not (isinstance(found, dict) and isinstance(found.get("process"), dict)):
        raise InputError("it is no process: an export has an object with `process`, `graph`, `tasks` and `decisions`")
    key = found["process"].get("_id")
    graph, tasks, decisions = found.get("graph"), found.get("tasks"), found.get("decisions")
    if not (isinstance(key, str) and isinstance(tasks, list) and isinstance(decisions, list)):
        raise InputError("it is no process: an export has an object with `process`, `graph`, `tasks` and `decisions`")
    records = [one for one in (*tasks, *decisions) if not (isinstance(one, Mapping) and _is_of(one.get("_id"), key))]
    if records or (graph is not None and not (isinstance(graph, dict) and graph.get("_id") == key)):
        raise InputError(f"it has records of another process than {key}")
    for name in ("removing", "recoveryTime"):
        found["process"].pop(name, None)
    return {"process": found["process"], "graph": graph, "tasks": tasks, "decisions": decisions}


def _is_of(record: Any, process_id: str) -> bool:
    return isinstance(record, str) and split_record_id(record)[0] == process_id
