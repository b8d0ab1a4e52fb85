"""Records put into the database in any condition, and what is there afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from recovery.records import Decision, Graph, Interruption, OperationRange, Process, Record, Task, Worker, to_document
from recovery.store import Store, schema
from recovery.store.concerns import committed
from tests.documents import database_of

COLLECTIONS: dict[type[Record], str] = {
    Process: schema.PROCESSES,
    Task: schema.TASKS,
    Decision: schema.DECISIONS,
    Graph: schema.GRAPHS,
    Worker: schema.WORKERS,
    Interruption: schema.INTERRUPTIONS,
    OperationRange: schema.OPERATION_RANGES,
}
CLOSE = timedelta(seconds=2)
"""How far a time that the database sets may be from one that the test reads."""


def put(store: Store, *made: Record) -> None:
    """Save records as they are, with none of the store's own logic or the validators'."""
    by_kind: dict[type[Record], list[dict[str, Any]]] = {}
    for record in made:
        by_kind.setdefault(type(record), []).append(to_document(record))
    for kind, documents in by_kind.items():
        collection = committed(
            database_of(store)[COLLECTIONS[kind]]
        )  # whoever reads next, with whatever concern, finds it
        collection.insert_many(documents, bypass_document_validation=True)


def get(store: Store, decision_id: str) -> Decision:
    """A decision that must be there."""
    found = store.decisions.get(decision_id)
    assert found is not None
    return found


def contents(store: Store, collection: str, ids: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    """The documents of a collection, or those of these ids, by id."""
    query = {} if ids is None else {"_id": {"$in": list(ids)}}
    return {document["_id"]: document for document in database_of(store)[collection].find(query)}


def is_about(moment: datetime | None, now: datetime, seconds: float) -> bool:
    """Whether a time is so far from now, a tenth more or less: what is jittered."""
    return moment is not None and abs((moment - now).total_seconds() - seconds) < 0.1 * seconds + CLOSE.total_seconds()


def is_close(moment: datetime | None, expected: datetime) -> bool:
    return moment is not None and abs(moment - expected) < CLOSE
