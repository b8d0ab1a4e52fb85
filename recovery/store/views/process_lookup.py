"""Single processes, for people: found by the names that they were given (`ProcessNames`), and shown task by task
(`ProcessDetails`). As a majority has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pymongo.database import Database
from pymongo.errors import OperationFailure

from recovery.records import Decision, DecisionState
from recovery.records.search_names import label_text
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import is_index_missing, translated
from recovery.store.expressions import record_range, record_ranges
from recovery.store.record_reading import decision_of, readable
from recovery.store.splitting import find_keys

CUSTOM_ID_INDEX = "customId"
# As its partial index has it, so that it is used: a custom id is a text, and so is a type.
_HAS_BOTH: Document = {"type": {"$gte": ""}, "customId": {"$gte": ""}}
_LAST = "\U0010ffff"
"""After all that begins as a text before it."""
_IS_TEXT: Document = {"$type": "string"}
_FIELDS = {"type": True, "customId": True}
LABEL_INDEX = "labels"
_TEXTS_LEFT_OUT = dict.fromkeys(
    (
        *("outcome.value", "outcome.error.stack", "call"),
        *("children.args", "children.deps", "children.dependents", "children.unlocks"),
    ),
    False,
)


@dataclass(frozen=True, slots=True)
class Named:
    """A process with a custom id."""

    id: str
    type: str
    custom_id: str


@translated
class ProcessNames:
    """Queries over the collection `processes`, as a majority has it. Each name or value of a label is one seek in index
    `labels`, however many processes have it."""

    def __init__(self, database: Database[Document]) -> None:
        self._processes = committed(database[schema.PROCESSES])

    def find(self, custom_id: str, limit: int) -> list[Named]:
        """Return up to `limit` processes with this custom id, by type. Index `customId`: a seek for each process
        type."""
        # With any type: the index is left for the next type once it has no more of this custom id.
        query = _HAS_BOTH | {"customId": custom_id}
        try:
            found = self._processes.find(query, _FIELDS).hint(CUSTOM_ID_INDEX).limit(limit).to_list()
        except OperationFailure as error:
            if not is_index_missing(error):
                raise
            # `doctor` tells of the index. Rather dear than not found.
            found = self._processes.find(query, _FIELDS).limit(limit).to_list()
        return sorted(map(_named, found), key=lambda one: (one.type, one.id))

    def last_former(self, custom_id: str) -> str | None:
        """The id of the last process that had this custom id and gave it up. Index `formerCustomId`."""
        found = self._processes.find({"formerCustomId": custom_id}, {"_id": True}).sort("_id", -1).limit(1).to_list()
        return found[0]["_id"] if found else None

    def is_taken(self, process_type: str, custom_id: str) -> bool:
        """Whether a process of this type has this custom id. Index `customId`."""
        return self._processes.find_one({"type": process_type, "customId": custom_id}, {"_id": True}) is not None

    def starting_with(self, start: str, limit: int) -> list[Named]:
        """Up to `limit` processes whose custom id starts so, for shells that complete it. Index `customId`: a range for
        each process type."""
        query = _HAS_BOTH | {"customId": {"$gte": start, "$lt": f"{start}{_LAST}"}}
        return [_named(one) for one in self._processes.find(query, _FIELDS).hint(CUSTOM_ID_INDEX).limit(limit)]

    def newest(self, start: str, limit: int) -> list[str]:
        """Up to `limit` ids of processes that start so, the newest first: ids sort by time. Index `_id`."""
        among = {"_id": {"$gte": start, "$lt": f"{start}{_LAST}"}}
        return [one["_id"] for one in self._processes.find(among, {"_id": True}).sort("_id", -1).limit(limit)]

    def of(self, process_ids: Iterable[str]) -> dict[str, str]:
        """{process: its custom id} of those of these that have one. Index `_id`."""
        found = find_keys(self._processes, process_ids, {"customId": True}, {"customId": _IS_TEXT})
        return {document["_id"]: document["customId"] for document in found}

    def label_names(self, start: str, limit: int) -> list[str]:
        """Up to `limit` names of labels that begin so."""
        found = self._leaps(start, limit, lambda label: label_text(_label_name(label), _LAST))
        return [_label_name(label) for label in found]

    def label_values(self, name: str, start: str, limit: int) -> list[str]:
        """Up to `limit` values of the label of this name that begin so."""
        found = self._leaps(label_text(name, start), limit, lambda label: label)
        return [label.partition("=")[2] for label in found]

    def _leaps(self, start: str, limit: int, end: Callable[[str], str]) -> Iterator[str]:
        """The first label that begins so, then the first after what `end` says of it, and so on."""
        bounds = {"$gte": start, "$lt": f"{start}{_LAST}"}
        for _ in range(limit):
            # One label within both bounds, else each is another's; and in the order of the index, since to be sorted by
            # them is to be sorted by the first of all that a process has.
            query = {"labels": {"$exists": True, "$elemMatch": bounds}}
            found = list(self._processes.find(query, {"labels": True}).hint(LABEL_INDEX).limit(1))
            among = [label for one in found for label in one["labels"] if _within(label, bounds)]
            if not among:
                return
            yield min(among)
            bounds = {"$gt": end(min(among)), "$lt": bounds["$lt"]}


def _named(document: Document) -> Named:
    return Named(document["_id"], document["type"], document["customId"])


def _label_name(label: str) -> str:
    return label.partition("=")[0]


def _within(label: object, bounds: dict[str, str]) -> bool:
    return isinstance(label, str) and bounds.get("$gte", "") <= label < bounds["$lt"] and label > bounds.get("$gt", "")


@dataclass(frozen=True, slots=True)
class TaskLine:
    """A task without its arguments, and who scheduled it."""

    id: str
    actor: str
    parent: str | None


@dataclass(frozen=True, slots=True)
class CallTexts:
    """The texts of one task's call, each whole or its first characters; None for one that is missing or is no text."""

    args: str | None = None
    """`[positional, named]` arguments."""
    value: str | None = None


@translated
class ProcessDetails:
    """Queries over the collections `tasks`, `decisions` and `graphs`."""

    def __init__(self, database: Database[Document]) -> None:
        self._tasks = committed(database[schema.TASKS])
        self._decisions = committed(database[schema.DECISIONS])
        self._graphs = committed(database[schema.GRAPHS])

    def call_texts(self, process_id: str, length: int | None = None) -> dict[str, CallTexts]:
        """{task: its texts} of a process, the first `length` characters of each. Index `_id`, one range each."""
        query = record_range(process_id)
        args = {"text": _start("args", length)}
        value = {"text": _start("outcome.value", length)}
        values = _texts(self._decisions.find(query, value).hint("_id_"))
        texts = _texts(self._tasks.find(query, args).hint("_id_"))
        return {task: CallTexts(texts.get(task), values.get(task)) for task in {**texts, **values}}

    def task_lines(self, process_id: str) -> list[TaskLine]:
        """Return all tasks of a process. Index `_id`, one range."""
        found = self._tasks.find(record_range(process_id), {"actor": True, "parent": True})
        return [
            TaskLine(d["_id"].partition("/")[2], _text(d.get("actor")) or "?", _text(d.get("parent"))) for d in found
        ]

    def decisions_of(self, process_id: str) -> dict[str, Decision]:
        """{task: decision} of a process, without values and arguments. Index `_id`, one range."""
        found = self._decisions.find(record_range(process_id), _TEXTS_LEFT_OUT)
        return {decision.task_id: decision for decision in readable(Decision, found, decision_of)}

    def open_links(self, process_id: str) -> dict[str, list[str]]:
        """{task: those that it waits for} of a process's tasks that are not finished. Index `_id`."""
        found = self._graphs.find_one({"_id": process_id}, {"links": True}) or {}
        links = found.get("links")
        links = links if isinstance(links, dict) else {}
        return {task: list(open_ones) for task, open_ones in links.items() if isinstance(open_ones, dict)}

    def values_of(self, process_ids: Sequence[str]) -> dict[str, dict[str, str | None]]:
        """{process: {task: its value's JSON text}} of the finished tasks of these; None for one without a value. Index
        `_id`, one range for each process. Reads all of them at once: for some processes whose values are small."""
        values: dict[str, dict[str, str | None]] = {process_id: {} for process_id in process_ids}
        if not values:
            return values
        finished = {**record_ranges(values), "state": DecisionState.FINISHED.value}
        for found in self._decisions.find(finished, {"outcome.value": True}).hint("_id_"):
            process_id, _, task = found["_id"].partition("/")
            values[process_id][task] = _text((found.get("outcome") or {}).get("value"))
        return values


def _texts(found: Iterable[Document]) -> dict[str, str]:
    return {
        document["_id"].partition("/")[2]: document["text"]
        for document in found
        if isinstance(document.get("text"), str)
    }


def _start(field: str, length: int | None) -> Document:
    # What another program made of it is shown without: $substrCP takes texts alone.
    is_text: Document = {"$eq": [{"$type": f"${field}"}, "string"]}
    text: object = f"${field}" if length is None else {"$substrCP": [f"${field}", 0, length]}
    return {"$cond": [is_text, text, "$$REMOVE"]}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
