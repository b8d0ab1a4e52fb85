"""Queries and inserts of the Task records. They are immutable, so there is no update. All are on the primary alone."""

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
        """Save tasks. Return how many did not exist yet; existing tasks are not changed."""
        return insert_missing(self._current, [to_document(task) for task in tasks])

    def withdraw(self, task_id: str, epoch: int) -> bool:
        """Remove the Task of a start whose process does not exist, if it has this epoch. Return whether it was
        removed.
        """
        return self._current.delete_one({"_id": task_id, "epoch": epoch}).deleted_count == 1

    def get(self, task_id: str) -> Task | None:
        """Return the whole task of this id (`P/T`, up to 16 MB), or None. Raises DamagedRecord."""
        document = self._current.find_one({"_id": task_id})
        return from_document(Task, document) if document else None

    def retry_terms(self, task_id: str) -> tuple[RetryOptions | None, str | None]:
        """Return a task's own retry options and the JSON text of its context. Both are None if the task does not exist.

        Raises:
            DamagedRecord: The record can't be read.
        """
        document = self._current.find_one({"_id": task_id}, {"retry": True, "context": True, "actor": True})
        if document is None:  # it is made again from its parent's decision before it can run
            return None, None
        task = from_document(Task, document | {"args": LEFT_OUT})
        return task.retry, task.context

    def retry_terms_of(self, task_ids: Sequence[str]) -> dict[str, tuple[RetryOptions | None, str | None]]:
        """Return {task: (retry options, context)} of these tasks. Missing and damaged tasks are left out; damage is
        logged.
        """
        fields = {"retry": True, "context": True, "actor": True}
        documents = (document | {"args": LEFT_OUT} for document in self._find(task_ids, fields))
        return {task.id: (task.retry, task.context) for task in readable(Task, documents)}

    def links(self, task_ids: Iterable[str]) -> dict[str, Task]:
        """Return {task: its record without arguments}, of those that exist. An apply needs their dependents."""
        documents = (document | {"args": LEFT_OUT} for document in self._find(task_ids, _LINKS))
        return {task.id: task for task in readable(Task, documents)}

    def link_sizes(self, task_ids: Iterable[str]) -> dict[str, int]:
        """Return {task: bytes that `links` would read}, of those that exist."""
        return {document["_id"]: document["size"] for document in self._find(task_ids, {"size": without("args")})}

    def present(self, task_ids: Iterable[str]) -> set[str]:
        """Return those of these ids that exist."""
        return {document["_id"] for document in self._find(task_ids, {"_id": True})}

    def dependents(self, task_ids: Iterable[str]) -> dict[str, list[str]]:
        """Return {task: names of the tasks of its process that wait for it}, of those that exist."""
        documents = self._find(task_ids, {"dependents": True})
        return {document["_id"]: list(document.get("dependents", ())) for document in documents}

    def _find(self, task_ids: Iterable[str], fields: Document) -> Iterator[Document]:
        return find_keys(self._current, task_ids, fields)


def insert_missing(collection: Collection[Any], documents: Sequence[Document]) -> int:
    """Insert documents whose `_id` does not exist yet. Return how many were inserted. Existing documents are not
    changed.
    """
    return len(documents) - len(there_already(collection, documents))


def there_already(collection: Collection[Any], documents: Sequence[Document]) -> list[Any]:
    """Insert documents whose `_id` does not exist yet. Return the ids of those that existed."""
    if not documents:
        return []
    try:
        if len(documents) == 1:  # costs half as much as a batch of one
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
