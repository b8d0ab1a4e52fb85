"""Queries and inserts of the Task records. They are immutable: there is no update."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, DuplicateKeyError

from recovery.records import RetryOptions, Task, from_document, to_document
from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import DUPLICATE_KEY, translated
from recovery.store.expressions import without
from recovery.store.record_reading import LEFT_OUT, readable
from recovery.store.splitting import find_keys

_LINKS = {"args": False, "deps": False}


@translated
class Tasks:
    """The collection `tasks`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current = current(collection)

    def insert(self, tasks: Sequence[Task]) -> int:
        """Save tasks; those that are there already are left as they are. How many were not."""
        return insert_missing(self._current, [to_document(task) for task in tasks])

    def withdraw(self, task_id: str, epoch: int) -> bool:
        """Remove the record of a start task that was made for a process that is gone."""
        return self._current.delete_one({"_id": task_id, "epoch": epoch}).deleted_count == 1

    def get(self, task_id: str) -> Task | None:
        """The task of this id, `P/T`, as a whole: up to 16 MB."""
        found = self._current.find_one({"_id": task_id})
        return from_document(Task, found) if found else None

    def retry_terms(self, task_id: str) -> tuple[RetryOptions | None, str | None]:
        """What a task says itself about its retries, and the JSON text of its context. Raises DamagedRecord."""
        found = self._current.find_one({"_id": task_id}, {"retry": True, "context": True, "actor": True})
        if found is None:  # made again from its parent's decision, before it can run
            return None, None
        task = from_document(Task, found | {"args": LEFT_OUT})
        return task.retry, task.context

    def retry_terms_of(self, task_ids: Sequence[str]) -> dict[str, tuple[RetryOptions | None, str | None]]:
        """Return the same of many tasks, by task. A damaged record says nothing."""
        fields = {"retry": True, "context": True, "actor": True}
        found = (document | {"args": LEFT_OUT} for document in self._find(task_ids, fields))
        return {task.id: (task.retry, task.context) for task in readable(Task, found)}

    def links(self, task_ids: Iterable[str]) -> dict[str, Task]:
        """The tasks that are there, by id, as an apply needs them: who waits for each, without arguments."""
        found = (document | {"args": LEFT_OUT} for document in self._find(task_ids, _LINKS))
        return {task.id: task for task in readable(Task, found)}

    def link_sizes(self, task_ids: Iterable[str]) -> dict[str, int]:
        """{task: bytes that `links` reads of it}, of those that are there."""
        return {found["_id"]: found["size"] for found in self._find(task_ids, {"size": without("args")})}

    def present(self, task_ids: Iterable[str]) -> set[str]:
        """The ids of those of these tasks that are there."""
        return {document["_id"] for document in self._find(task_ids, {"_id": True})}

    def dependents(self, task_ids: Iterable[str]) -> dict[str, list[str]]:
        """{task: those of its process that wait for it}, by names, of the tasks that are there."""
        found = self._find(task_ids, {"dependents": True})
        return {document["_id"]: list(document.get("dependents", ())) for document in found}

    def _find(self, task_ids: Iterable[str], fields: Document) -> Iterator[Document]:
        return find_keys(self._current, task_ids, fields)


def insert_missing(collection: Collection[Any], documents: Sequence[Document]) -> int:
    """Insert documents, unordered; one whose key is there already is left as it is. How many were not there."""
    return len(documents) - len(there_already(collection, documents))


def there_already(collection: Collection[Any], documents: Sequence[Document]) -> list[Any]:
    """The same; keys of those that were there."""
    if not documents:
        return []
    try:
        if len(documents) == 1:  # half as dear as a batch of one
            collection.insert_one(documents[0])
        else:
            collection.insert_many(documents, ordered=False)
    except DuplicateKeyError:
        return [documents[0]["_id"]]
    except BulkWriteError as error:
        if any(failure["code"] != DUPLICATE_KEY for failure in error.details["writeErrors"]):
            raise
        return [documents[failure["index"]]["_id"] for failure in error.details["writeErrors"]]
    return []
