"""Processes with all of their records as JSON texts, a line for each, and back: what is kept of what is removed.

A line is an object `{"process": …, "graph": …, "tasks": […], "decisions": […]}` in MongoDB's relaxed Extended JSON:
times are `{"$date": "…"}`, all else is plain. What is read back comes in an epoch of its own, above all that its
records had: whoever began to remove it before, and was paused since, finds nothing any more that he may remove.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from bson import encode
from bson.errors import InvalidDocument
from bson.json_util import RELAXED_JSON_OPTIONS, dumps, loads
from pymongo.common import MAX_BSON_SIZE
from pymongo.database import Database

from recovery.errors import InputError
from recovery.records import given
from recovery.records.ids import SEPARATOR, is_process_id, is_record_id, split_record_id
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import record_ranges

_OF_TASKS = {"tasks": schema.TASKS, "decisions": schema.DECISIONS}
MAX_LINE = 512 * 1024 * 1024
"""Bytes of a process as a line. One of 100,000 tasks has about 100 MB. Without a limit a file could take all memory."""
MAX_DEPTH = 100
"""Levels of documents and arrays in each other that MongoDB promises to take. Ours have six."""
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

    @property
    def records(self) -> list[Document]:
        """All records of the process."""
        return [self.process, *([self.graph] if self.graph is not None else []), *self.tasks, *self.decisions]

    @property
    def exported_epoch(self) -> int:
        """The epoch of the process's record when it was exported."""
        of, told = self.process["epoch"], self.process.get("importedEpoch")
        return int(told if told is not None and self.process.get("importedAs") == of else of)

    def without_mark(self) -> Whole:
        """Return the same process without its mark of a removal."""
        kept = {
            name: value for name, value in self.process.items() if name not in ("removing", "order", "recoveryTime")
        }
        return replace(self, process=kept)

    def begun_anew(self, epoch: int) -> Whole:
        """The same in this epoch, each record moved as far as the others, which tells from which it was read back."""
        by = epoch - self.process["epoch"]

        def moved(record: Document) -> Document:
            return {**record, "epoch": record["epoch"] + by}

        imported = {"importedEpoch": self.exported_epoch, "importedAs": epoch}
        return Whole(
            process={**moved(self.process), **imported},
            graph=moved(self.graph) if self.graph is not None else None,
            tasks=list(map(moved, self.tasks)),
            decisions=list(map(moved, self.decisions)),
        )

    def line(self) -> str:
        """Return the process as a text without line breaks. Raises InputError if nobody could read it back."""
        for record in self.records:
            _check_storable(record)
        found = {"process": self.process, "graph": self.graph, "tasks": self.tasks, "decisions": self.decisions}
        line = dumps(found, json_options=RELAXED_JSON_OPTIONS)
        if len(line) > MAX_LINE:
            raise InputError(f"it has {len(line):,} characters, and an import reads {MAX_LINE:,} at the most")
        return line


Line = tuple[Whole, str]
"""A process, and the line that it is."""


@translated
class Exports:
    """Reads whole processes, as a majority has them, and their lines."""

    def __init__(self, database: Database[Document]) -> None:
        self._told = {name: committed(database[name]) for name in schema.OF_PROCESSES}

    def wholes(self, process_ids: Sequence[str]) -> Iterator[Whole]:
        """Those of these that are there, in order of id. Four queries, of which one process is in memory at a time, and
        the next one. Index `_id_`."""
        if not process_ids:
            return
        among: Document = {"_id": {"$in": list(process_ids)}}
        ranges: Document = record_ranges(process_ids)
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


class _Records:
    """Records in order of their keys, handed out process by process."""

    def __init__(self, source: Iterator[Document]) -> None:
        self._groups = groupby(source, lambda document: split_record_id(document["_id"])[0])
        self._held: dict[str, list[Document]] = {}
        self._last = ""

    def take(self, process_id: str) -> list[Document]:
        """Return all records of this process. Must be called in order of process ids. If one id begins with another,
        their records may come in the other order, so records that come too early are held."""
        while self._last < process_id + SEPARATOR and (group := next(self._groups, None)) is not None:
            key, documents = group
            self._held[key], self._last = list(documents), key + SEPARATOR
        return self._held.pop(process_id, [])


def _loaded(line: str) -> Document:
    try:
        found = loads(line, json_options=RELAXED_JSON_OPTIONS.with_options(tz_aware=True))
    except MemoryError:
        raise
    except Exception as error:  # the driver's own, and whatever a text leads to that somebody has changed
        raise InputError(f"it is no JSON: {error}") from None
    if not (isinstance(found, dict) and isinstance(found.get("process"), dict)):
        raise InputError(_NONE)
    return found


def _parsed(line: str) -> Whole:
    found = _loaded(line)
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
    whole = Whole(process, graph, tasks, decisions).without_mark()
    for record in whole.records:
        if record.get("epoch") is None:  # of a life that had none before
            record["epoch"] = 0
        _check_storable(record)
    return whole


def _check_storable(record: Document) -> None:
    """Raise InputError for a record that MongoDB would not take, or would take for an expression."""
    if _is_deeper(record, MAX_DEPTH):
        raise InputError(f"record {record['_id']} is nested over {MAX_DEPTH} levels deep")
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


def _is_of(record: Any, process_id: str) -> bool:
    return is_record_id(record) and split_record_id(record)[0] == process_id


def _is_deeper(value: Any, most: int) -> bool:
    """Whether documents and arrays are in each other on more levels than this."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(most == 0 or _is_deeper(one, most - 1) for one in inner if isinstance(one, (Mapping, list)))
