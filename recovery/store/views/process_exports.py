"""Exports of processes with all their records as JSON lines, so that removed processes can be kept and imported again.

A line is an object `{"process": …, "graph": …, "tasks": […], "decisions": […]}` in MongoDB's relaxed Extended JSON:
times are `{"$date": "…"}`, everything else is plain JSON. An imported process gets a new epoch, higher than all epochs
of its records. A worker that began to remove the process earlier therefore finds nothing to remove.
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
"""Maximum length of a line, in bytes. A process of 100,000 tasks takes about 100 MB. Without a limit, an import
could use all memory."""
MAX_DEPTH = 100
"""Maximum nesting depth of documents and arrays that MongoDB supports. Our records use six levels."""
_NOT_A_PROCESS = "it is not a process: a line of an export has `process`, `graph`, `tasks` and `decisions`"


@dataclass(frozen=True, slots=True)
class Whole:
    """A process with all of its records as documents."""

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
        """The epoch by which exports of a process are compared.

        For a process that is unchanged since its import, this is the epoch in the export that was imported.
        """
        epoch, imported_epoch = self.process["epoch"], self.process.get("importedEpoch")
        return int(imported_epoch if imported_epoch is not None and self.process.get("importedAs") == epoch else epoch)

    def without_mark(self) -> Whole:
        """Return the same process without its removal mark."""
        fields = {
            name: value for name, value in self.process.items() if name not in ("removing", "order", "recoveryTime")
        }
        return replace(self, process=fields)

    def begun_anew(self, epoch: int) -> Whole:
        """Return the same process in this epoch, marked as imported. All records move by the same number of epochs."""
        distance = epoch - self.process["epoch"]

        def in_new_epoch(record: Document) -> Document:
            return {**record, "epoch": record["epoch"] + distance}

        import_fields = {"importedEpoch": self.exported_epoch, "importedAs": epoch}
        return Whole(
            process={**in_new_epoch(self.process), **import_fields},
            graph=in_new_epoch(self.graph) if self.graph is not None else None,
            tasks=list(map(in_new_epoch, self.tasks)),
            decisions=list(map(in_new_epoch, self.decisions)),
        )

    def line(self) -> str:
        """Return the process as a text without line breaks.

        Raises:
            InputError: The line could not be imported again: it is too long, or MongoDB does not accept a record.
        """
        for record in self.records:
            _check_storable(record)
        records = {"process": self.process, "graph": self.graph, "tasks": self.tasks, "decisions": self.decisions}
        line = dumps(records, json_options=RELAXED_JSON_OPTIONS)
        if len(line) > MAX_LINE:
            raise InputError(f"it has {len(line):,} characters, and an import reads {MAX_LINE:,} at the most")
        return line


Line = tuple[Whole, str]
"""A process and its line."""


@translated
class Exports:
    """Reads of whole processes (read concern majority), and parsing of lines."""

    def __init__(self, database: Database[Document]) -> None:
        self._collections = {name: committed(database[name]) for name in schema.OF_PROCESSES}

    def wholes(self, process_ids: Sequence[str]) -> Iterator[Whole]:
        """Yield those of these processes that exist, in order of id.

        Uses four queries by index `_id_`. One or two processes are in memory at a time.
        """
        if not process_ids:
            return
        by_id: Document = {"_id": {"$in": list(process_ids)}}
        ranges: Document = record_ranges(process_ids)
        graphs, tasks, decisions = (
            _Records(self._collections[name].find(query).sort("_id", 1).hint("_id_"))
            for name, query in ((schema.GRAPHS, by_id), (schema.TASKS, ranges), (schema.DECISIONS, ranges))
        )
        for process in self._collections[schema.PROCESSES].find(by_id).sort("_id", 1).hint("_id_"):
            process_id = process["_id"]
            graph = next(iter(graphs.take(process_id)), None)
            yield Whole(process, graph, tasks.take(process_id), decisions.take(process_id))

    @staticmethod
    def parsed(line: str) -> Whole:
        """Parse a line that `line` returned.

        Raises:
            InputError: The line is not an exported process.
        """
        return _parsed(line)


class _Records:
    """A cursor of records in order of id, split by process."""

    def __init__(self, source: Iterator[Document]) -> None:
        self._groups = groupby(source, lambda document: split_record_id(document["_id"])[0])
        self._early: dict[str, list[Document]] = {}
        self._last = ""

    def take(self, process_id: str) -> list[Document]:
        """Return all records of this process. Must be called in the order of process ids.

        If one id is a prefix of another, the records may come in the other order. Records that come too early are kept
        for later calls.
        """
        while self._last < process_id + SEPARATOR and (group := next(self._groups, None)) is not None:
            group_id, documents = group
            self._early[group_id], self._last = list(documents), group_id + SEPARATOR
        return self._early.pop(process_id, [])


def _loaded(line: str) -> Document:
    try:
        document = loads(line, json_options=RELAXED_JSON_OPTIONS.with_options(tz_aware=True))
    except MemoryError:
        raise
    except Exception as error:  # the driver raises various errors for a text that somebody has changed
        raise InputError(f"it is not valid JSON: {error}") from None
    if not (isinstance(document, dict) and isinstance(document.get("process"), dict)):
        raise InputError(_NOT_A_PROCESS)
    return document


def _parsed(line: str) -> Whole:
    document = _loaded(line)
    process, graph = document["process"], document.get("graph")
    process_id, tasks, decisions = process.get("_id"), document.get("tasks"), document.get("decisions")
    if not (isinstance(tasks, list) and isinstance(decisions, list)):
        raise InputError(_NOT_A_PROCESS)
    if not is_process_id(process_id):
        raise InputError(f"it is not a process: its _id is {given.shown(process_id)}, and an id has 32 hex digits")
    for record in (*tasks, *decisions):
        if not (isinstance(record, Mapping) and _is_of(record.get("_id"), process_id)):
            found_id = record.get("_id") if isinstance(record, Mapping) else record
            raise InputError(
                f"process {process_id}: it has the record {given.shown(found_id)}, whose _id is none of its tasks"
            )
    if graph is not None and not (isinstance(graph, dict) and graph.get("_id") == process_id):
        raise InputError(f"process {process_id}: its graph is of another process")
    whole = Whole(process, graph, tasks, decisions).without_mark()
    for record in whole.records:
        if record.get("epoch") is None:  # an old record without an epoch
            record["epoch"] = 0
        _check_storable(record)
    return whole


def _check_storable(record: Document) -> None:
    """Raise InputError if MongoDB would reject a record or interpret it as an expression."""
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


def _is_deeper(value: Any, max_depth: int) -> bool:
    """Return whether documents and arrays are nested deeper than `max_depth` levels."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(
        max_depth == 0 or _is_deeper(child, max_depth - 1) for child in inner if isinstance(child, (Mapping, list))
    )
