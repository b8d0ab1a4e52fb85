"""The tasks of single processes, for people: what they were called with and what they gave, as texts of JSON, their
decisions, and what they wait for. As a majority has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pymongo.database import Database

from recovery.records import Decision, DecisionState
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import record_range
from recovery.store.record_reading import decision_of, readable

_TEXTS_LEFT_OUT = dict.fromkeys(
    (
        *("outcome.value", "outcome.error.stack", "call"),
        *("children.args", "children.deps", "children.dependents", "children.unlocks"),
    ),
    False,
)


@dataclass(frozen=True, slots=True)
class TaskLine:
    """A task without its arguments, and who scheduled it."""

    id: str
    actor: str
    parent: str | None


@dataclass(frozen=True, slots=True)
class CallTexts:
    """One task's, each whole or its first characters; None for what is not there, or is no text."""

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
        """All tasks of a process. Index `_id`, one range."""
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
        finished = {"$or": [record_range(process_id) for process_id in values], "state": DecisionState.FINISHED.value}
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
