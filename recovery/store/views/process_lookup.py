"""Queries for people about single processes. Read concern majority.

`ProcessNames` finds processes by custom ids and labels. `ProcessDetails` reads the tasks of one process.
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
# Same conditions as the partial index, so that MongoDB uses it. Custom ids and types are texts.
_HAS_BOTH: Document = {"type": {"$gte": ""}, "customId": {"$gte": ""}}
_LAST = "\U0010ffff"
"""A character that sorts after all others, for the upper bound of a prefix."""
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
    """Queries of the collection `processes` by names. Read concern majority.

    Each name or value of a label is one seek in index `labels`, however many processes have it.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._processes = committed(database[schema.PROCESSES])

    def find(self, custom_id: str, limit: int) -> list[Named]:
        """Return up to `limit` processes with this custom id, sorted by type.

        Index `customId`, one seek per process type.
        """
        # With a condition on type, MongoDB skips to the next type when the index has no more entries for this custom
        # id.
        query = _HAS_BOTH | {"customId": custom_id}
        try:
            documents = self._processes.find(query, _FIELDS).hint(CUSTOM_ID_INDEX).limit(limit).to_list()
        except OperationFailure as error:
            if not is_index_missing(error):
                raise
            # `doctor` reports the missing index. Without it, a slow query is better than no result.
            documents = self._processes.find(query, _FIELDS).limit(limit).to_list()
        return sorted(map(_named, documents), key=lambda named: (named.type, named.id))

    def last_former(self, custom_id: str) -> str | None:
        """Return the id of the newest process that had this custom id and lost it; None if there is none.

        Index `formerCustomId`.
        """
        documents = (
            self._processes.find({"formerCustomId": custom_id}, {"_id": True}).sort("_id", -1).limit(1).to_list()
        )
        return documents[0]["_id"] if documents else None

    def is_taken(self, process_type: str, custom_id: str) -> bool:
        """Return whether a process of this type has this custom id. Index `customId`."""
        return self._processes.find_one({"type": process_type, "customId": custom_id}, {"_id": True}) is not None

    def starting_with(self, start: str, limit: int) -> list[Named]:
        """Return up to `limit` processes whose custom id starts with `start`, for shell completion.

        Index `customId`, one range per process type.
        """
        query = _HAS_BOTH | {"customId": {"$gte": start, "$lt": f"{start}{_LAST}"}}
        return [
            _named(document) for document in self._processes.find(query, _FIELDS).hint(CUSTOM_ID_INDEX).limit(limit)
        ]

    def newest(self, start: str, limit: int) -> list[str]:
        """Return up to `limit` process ids that start with `start`, the newest first.

        Index `_id`, which is in order of time.
        """
        in_range = {"_id": {"$gte": start, "$lt": f"{start}{_LAST}"}}
        return [
            document["_id"] for document in self._processes.find(in_range, {"_id": True}).sort("_id", -1).limit(limit)
        ]

    def of(self, process_ids: Iterable[str]) -> dict[str, str]:
        """Return the custom ids of these processes by process id.

        Processes without a custom id are absent. Index `_id`.
        """
        documents = find_keys(self._processes, process_ids, {"customId": True}, {"customId": _IS_TEXT})
        return {document["_id"]: document["customId"] for document in documents}

    def label_names(self, start: str, limit: int) -> list[str]:
        """Return up to `limit` names of labels that start with `start`. Index `labels`."""
        labels = self._leaps(start, limit, lambda label: label_text(_label_name(label), _LAST))
        return [_label_name(label) for label in labels]

    def label_values(self, name: str, start: str, limit: int) -> list[str]:
        """Return up to `limit` values of this label that start with `start`. Index `labels`."""
        labels = self._leaps(label_text(name, start), limit, lambda label: label)
        return [label.partition("=")[2] for label in labels]

    def _leaps(self, start: str, limit: int, end: Callable[[str], str]) -> Iterator[str]:
        """Yield labels that start with `start`, at most `limit`, skipping in the index.

        Args:
            start: Prefix of the labels.
            limit: Maximum number of labels.
            end: Returns the text after which the search continues, given a label.
        """
        bounds = {"$gte": start, "$lt": f"{start}{_LAST}"}
        for _ in range(limit):
            # `$elemMatch`, because both bounds must hold for the same label. The hint keeps the order of the index;
            # sorting would use the first of all labels of a process.
            query = {"labels": {"$exists": True, "$elemMatch": bounds}}
            documents = list(self._processes.find(query, {"labels": True}).hint(LABEL_INDEX).limit(1))
            matches = [label for document in documents for label in document["labels"] if _within(label, bounds)]
            if not matches:
                return
            yield min(matches)
            bounds = {"$gt": end(min(matches)), "$lt": bounds["$lt"]}


def _named(document: Document) -> Named:
    return Named(document["_id"], document["type"], document["customId"])


def _label_name(label: str) -> str:
    return label.partition("=")[0]


def _within(label: object, bounds: dict[str, str]) -> bool:
    return isinstance(label, str) and bounds.get("$gte", "") <= label < bounds["$lt"] and label > bounds.get("$gt", "")


@dataclass(frozen=True, slots=True)
class TaskLine:
    """A task without its arguments, and the task that scheduled it."""

    id: str
    actor: str
    parent: str | None


@dataclass(frozen=True, slots=True)
class CallTexts:
    """The JSON texts of one task, complete or cut; None if a text is missing or is not a string."""

    args: str | None = None
    """`[positional, named]` arguments."""
    value: str | None = None


@translated
class ProcessDetails:
    """Queries of the collections `tasks`, `decisions` and `graphs`. Read concern majority."""

    def __init__(self, database: Database[Document]) -> None:
        self._tasks = committed(database[schema.TASKS])
        self._decisions = committed(database[schema.DECISIONS])
        self._graphs = committed(database[schema.GRAPHS])

    def call_texts(self, process_id: str, length: int | None = None) -> dict[str, CallTexts]:
        """Return the arguments and values of a process's tasks by task name, cut to `length` characters.

        Index `_id`, one range in each collection.
        """
        query = record_range(process_id)
        args = {"text": _start("args", length)}
        value = {"text": _start("outcome.value", length)}
        values = _texts(self._decisions.find(query, value).hint("_id_"))
        texts = _texts(self._tasks.find(query, args).hint("_id_"))
        return {task: CallTexts(texts.get(task), values.get(task)) for task in {**texts, **values}}

    def task_lines(self, process_id: str) -> list[TaskLine]:
        """Return all tasks of a process. Index `_id`, one range."""
        documents = self._tasks.find(record_range(process_id), {"actor": True, "parent": True})
        return [
            TaskLine(
                document["_id"].partition("/")[2], _text(document.get("actor")) or "?", _text(document.get("parent"))
            )
            for document in documents
        ]

    def decisions_of(self, process_id: str) -> dict[str, Decision]:
        """Return the decisions of a process by task name, without values and arguments. Index `_id`, one range."""
        documents = self._decisions.find(record_range(process_id), _TEXTS_LEFT_OUT)
        return {decision.task_id: decision for decision in readable(Decision, documents, decision_of)}

    def open_links(self, process_id: str) -> dict[str, list[str]]:
        """Return {task: tasks that it still waits for} of a process's unfinished tasks. Index `_id`."""
        graph = self._graphs.find_one({"_id": process_id}, {"links": True}) or {}
        links = graph.get("links")
        links = links if isinstance(links, dict) else {}
        return {task: list(open_tasks) for task, open_tasks in links.items() if isinstance(open_tasks, dict)}

    def values_of(self, process_ids: Sequence[str]) -> dict[str, dict[str, str | None]]:
        """Return {process id: {task: JSON text of its value}} of finished tasks; None for a task without a value.

        Index `_id`, one range per process. Holds all values in memory, so it suits a few processes with small values.
        """
        values: dict[str, dict[str, str | None]] = {process_id: {} for process_id in process_ids}
        if not values:
            return values
        finished = {**record_ranges(values), "state": DecisionState.FINISHED.value}
        for document in self._decisions.find(finished, {"outcome.value": True}).hint("_id_"):
            process_id, _, task = document["_id"].partition("/")
            values[process_id][task] = _text((document.get("outcome") or {}).get("value"))
        return values


def _texts(documents: Iterable[Document]) -> dict[str, str]:
    return {
        document["_id"].partition("/")[2]: document["text"]
        for document in documents
        if isinstance(document.get("text"), str)
    }


def _start(field: str, length: int | None) -> Document:
    # `$substrCP` accepts texts only. Another type, written by another program, is left out.
    is_text: Document = {"$eq": [{"$type": f"${field}"}, "string"]}
    text: object = f"${field}" if length is None else {"$substrCP": [f"${field}", 0, length]}
    return {"$cond": [is_text, text, "$$REMOVE"]}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
