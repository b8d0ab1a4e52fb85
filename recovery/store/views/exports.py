"""Processes with all of their records as JSON texts, a line for each, and back: what is kept of what is removed.

A line is an object `{"process": …, "graph": …, "tasks": […], "decisions": […]}` in MongoDB's relaxed Extended JSON:
times are `{"$date": "…"}`, all else is plain. What is read back comes in an epoch of its own, above all that its
records had: whoever began to remove it before, and was paused since, finds nothing any more that he may remove.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from bson import encode
from bson.errors import InvalidDocument
from bson.json_util import RELAXED_JSON_OPTIONS, dumps, loads
from pymongo.collection import Collection
from pymongo.common import MAX_BSON_SIZE
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from recovery.errors import InputError
from recovery.records import given
from recovery.records.ids import SEPARATOR, is_process_id, is_record_id, split_record_id
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import record_range

_OF_TASKS = {"tasks": schema.TASKS, "decisions": schema.DECISIONS}
_DUPLICATE = 11000
MAX_LINE = 512 * 1024 * 1024
"""Bytes of a process as a line. One of 100,000 tasks has about 100 MB. Without a limit a file could take all memory."""
_NONE = "it is no process: an export has an object with `process`, `graph`, `tasks` and `decisions`"


@dataclass(frozen=True, slots=True)
class Whole:
    """A process with all of its records, as documents."""

    process: Document
    graph: Document | None
    tasks: list[Document]
    decisions: list[Document]

    @property
    def id(self) -> str:
        return str(self.process["_id"])

    def line(self) -> str:
        """All of it, as a text without line breaks. Raises InputError if nobody could read it back."""
        found = {"process": self.process, "graph": self.graph, "tasks": self.tasks, "decisions": self.decisions}
        line = dumps(found, json_options=RELAXED_JSON_OPTIONS)
        if len(line) > MAX_LINE:
            raise InputError(f"process {self.id} is longer than the {MAX_LINE:,} bytes that an import reads")
        return line


@translated
class Exports:
    """Reads, as a majority has them, and writes whole processes."""

    def __init__(self, database: Database[Document]) -> None:
        self._told = {name: committed(database[name]) for name in schema.OF_PROCESSES}

    def wholes(self, process_ids: Sequence[str]) -> Iterator[Whole]:
        """Those of these that are there, in order of id. Four queries, of which one process is in memory at a time, and
        the next one. Index `_id_`."""
        if not process_ids:
            return
        among: Document = {"_id": {"$in": list(process_ids)}}
        ranges: Document = {"$or": [record_range(key) for key in process_ids]}
        graphs, tasks, decisions = (
            _Records(self._told[name].find(query).sort("_id", 1).hint("_id_"))
            for name, query in ((schema.GRAPHS, among), (schema.TASKS, ranges), (schema.DECISIONS, ranges))
        )
        for process in self._told[schema.PROCESSES].find(among).sort("_id", 1).hint("_id_"):
            key = process["_id"]
            graph = next(iter(graphs.take(key)), None)
            yield Whole(process, graph, tasks.take(key), decisions.take(key))

    @staticmethod
    def parsed(line: str) -> Whole:
        """What a line holds, to be saved in an epoch of its own. Raises InputError for what is no such line."""
        return _parsed(line)

    def insert(self, wholes: Sequence[Whole]) -> set[str]:
        """Save processes, themselves last; which were not there. Five round trips, and one more where a custom id is
        another's by now: such a process comes without it.

        Raises InputError for one that is being removed, and for what MongoDB does not take.
        """
        ids = [one.id for one in wholes]
        there = {one["_id"]: one for one in self._processes.find({"_id": {"$in": ids}}, {"removing": True})}
        if going := [key for key, one in there.items() if one.get("removing")]:
            raise InputError(f"process {going[0]} is just being removed; import it again once that is over")
        new = {one.id: one for one in reversed(wholes) if one.id not in there}
        for name in _OF_TASKS:
            self._insert(_OF_TASKS[name], [record for one in new.values() for record in getattr(one, name)])
        self._insert(schema.GRAPHS, [one.graph for one in new.values() if one.graph is not None])
        failed = self._insert(schema.PROCESSES, [one.process for one in new.values()])
        # By its index: of a process that somebody else imports just now the key is there.
        taken = {failure["op"]["_id"] for failure in failed if "customId" in failure.get("keyPattern", ())}
        for key in taken:
            process = new[key].process
            process["formerCustomId"] = process.pop("customId")
        again = self._insert(schema.PROCESSES, [new[key].process for key in taken])
        lost = {failure["op"]["_id"] for failure in failed} - taken | {failure["op"]["_id"] for failure in again}
        return new.keys() - lost

    @property
    def _processes(self) -> Collection[Document]:
        return self._told[schema.PROCESSES]

    def _insert(self, name: str, documents: Sequence[Document]) -> list[Document]:
        """Insert what is missing; what was refused since it, or its custom id, is there."""
        if not documents:
            return []
        try:
            self._told[name].insert_many(documents, ordered=False)
        except BulkWriteError as error:
            failed: list[Document] = error.details["writeErrors"]
            for failure in failed:
                if failure["code"] != _DUPLICATE:
                    told = f"{given.shown(failure['op']['_id'])} of {name}: MongoDB does not take it"
                    raise InputError(f"{told}: {failure.get('errmsg')}") from None
            if error.details["writeConcernErrors"]:
                raise
            return failed
        except OverflowError:
            raise InputError(f"{name}: a number has more than the 64 bits that MongoDB has for one") from None
        return []


class _Records:
    """Records in order of their keys, handed out process by process."""

    def __init__(self, source: Iterator[Document]) -> None:
        self._groups = groupby(source, lambda document: split_record_id(document["_id"])[0])
        self._held: dict[str, list[Document]] = {}
        self._last = ""

    def take(self, process_id: str) -> list[Document]:
        """All of this process. Asked for in order of ids: of two of which one begins with the other that of the records
        may be another, so what comes too early is held."""
        while self._last < process_id + SEPARATOR and (group := next(self._groups, None)) is not None:
            key, documents = group
            self._held[key], self._last = list(documents), key + SEPARATOR
        return self._held.pop(process_id, [])


def _parsed(line: str) -> Whole:
    try:
        found = loads(line, json_options=RELAXED_JSON_OPTIONS.with_options(tz_aware=True))
    except Exception as error:  # the driver's own, and whatever a text leads to that somebody has changed
        raise InputError(f"it is no JSON: {error}") from None
    if not (isinstance(found, dict) and isinstance(found.get("process"), dict)):
        raise InputError(_NONE)
    process, graph = found["process"], found.get("graph")
    key, tasks, decisions = process.get("_id"), found.get("tasks"), found.get("decisions")
    if not (isinstance(tasks, list) and isinstance(decisions, list)):
        raise InputError(_NONE)
    if not is_process_id(key):
        raise InputError(f"it is no process: its _id is {given.shown(key)}, and an id has 32 hex digits")
    for record in (*tasks, *decisions):
        if not (isinstance(record, Mapping) and _is_of(record.get("_id"), key)):
            found_id = record.get("_id") if isinstance(record, Mapping) else record
            raise InputError(
                f"process {key}: it has the record {given.shown(found_id)}, whose _id is none of its tasks"
            )
    if graph is not None and not (isinstance(graph, dict) and graph.get("_id") == key):
        raise InputError(f"process {key}: its graph is of another process")
    for name in ("removing", "recoveryTime"):
        process.pop(name, None)
    whole = [process, *([graph] if graph else []), *tasks, *decisions]
    _begin_epoch(whole)
    for record in whole:
        _check_storable(record)
    return Whole(process, graph, tasks, decisions)


def _check_storable(record: Document) -> None:
    """Raise InputError for a record that MongoDB would not take, or would take for an expression."""
    try:
        size = len(encode(record, check_keys=True))
    except UnicodeEncodeError:
        raise InputError(f"record {record['_id']} holds a lone surrogate, which is not text; remove it") from None
    except OverflowError:
        raise InputError(
            f"record {record['_id']}: a number has more than the 64 bits that MongoDB has for one"
        ) from None
    except (InvalidDocument, RecursionError) as error:
        raise InputError(f"record {record['_id']}: MongoDB does not take it: {str(error)[:200]}") from None
    if size > MAX_BSON_SIZE:
        raise InputError(f"record {record['_id']} has {size:,} bytes, and MongoDB takes {MAX_BSON_SIZE:,}")


def _begin_epoch(records: Sequence[Document]) -> None:
    """Move all of these above the last epoch that one of them is of, each as far as the others."""
    known = [one for one in records if type(one.get("epoch")) is int]
    above = max((one["epoch"] for one in known), default=0) + 1
    for one in known:
        one["epoch"] += above


def _is_of(record: Any, process_id: str) -> bool:
    return is_record_id(record) and split_record_id(record)[0] == process_id
