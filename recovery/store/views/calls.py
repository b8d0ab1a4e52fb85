"""What tasks were called with and what they gave, as texts of JSON. For people: as a majority has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pymongo.database import Database

from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import record_range


@dataclass(frozen=True, slots=True)
class CallTexts:
    """One task's, each whole or its first characters; None for what is not there, or is no text."""

    args: str | None = None
    """`[positional, named]` arguments."""
    value: str | None = None


@translated
class Calls:
    """Queries over the collections `tasks` and `decisions`."""

    def __init__(self, database: Database[Document]) -> None:
        self._tasks = committed(database[schema.TASKS])
        self._decisions = committed(database[schema.DECISIONS])

    def of_process(self, process_id: str, length: int | None = None) -> dict[str, CallTexts]:
        """{task: its texts} of a process, the first `length` characters of each. Index `_id`, one range each."""
        query = record_range(process_id)
        args = {"text": _start("args", length)}
        value = {"text": _start("outcome.value", length)}
        values = _texts(self._decisions.find(query, value).hint("_id_"))
        texts = _texts(self._tasks.find(query, args).hint("_id_"))
        return {task: CallTexts(texts.get(task), values.get(task)) for task in {**texts, **values}}


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
