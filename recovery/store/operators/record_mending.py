"""Queries that find damaged records (`Damaged`), and updates that mend them (`Mending`).

An update compares the fields that it was decided from, and bypasses the validators. A sweep also finds damaged records
that are at rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from pymongo.database import Database

from recovery.errors import DamagedRecord
from recovery.records import (
    Decision,
    DecisionState,
    Outcome,
    Process,
    ProcessState,
    Record,
    Until,
    forgotten,
    from_document,
)
from recovery.records.ids import started_at
from recovery.store import definitions, schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import literal, record_range
from recovery.store.record_reading import decision_of, read, tell, wrong_types

AT_ONCE = 10
"""Batch size when texts are read. Each record may hold 16 MB of text."""
_HAS_DEADLINE: Document = {"recoveryTime": {"$exists": True}}

_TEXTS = {
    schema.PROCESSES: ("args", "result"),
    schema.TASKS: ("args",),
    schema.DECISIONS: ("outcome.value",),
}
"""Fields that contain JSON, by collection."""

_COLLECTIONS: dict[str, str] = {kind.__name__: name for name, kind in definitions.KINDS.items()}
_LIVE_STATES = {
    # A finished decision with a deadline is applied once more and is then at rest.
    Decision.__name__: [state.value for state in DecisionState if state is not DecisionState.WAITING],
    Process.__name__: [ProcessState.RUNNING.value],
}
_ENDED = [state.value for state in ProcessState if state is not ProcessState.RUNNING]


@translated
class Damaged:
    """Queries for damaged records in all collections. Read concern majority.

    Of the collections that describe processes, only records with a deadline are checked. The other collections are
    small and are checked completely.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def find(self, limit: int, most: int) -> Iterator[DamagedRecord]:
        """Yield up to `limit` damaged records of each collection.

        Of the collections that describe processes, the `most` earliest deadlines are checked (index `deadline`). Tasks
        have no deadline and are skipped.
        """
        for name, kind in definitions.KINDS.items():
            if name == schema.TASKS:
                continue  # tasks are never live
            collection, wrong = committed(self._database[name]), {"$or": wrong_types(kind)}
            if name in schema.OF_PROCESSES:
                stages: list[Document] = [
                    {"$match": _HAS_DEADLINE},
                    {"$limit": most},
                    {"$match": wrong},
                    {"$limit": limit},
                ]
                yield from read(kind, collection.aggregate(stages, hint="deadline")).damaged
            else:
                yield from read(kind, collection.find(wrong).limit(limit)).damaged

    def texts(self, process_id: str) -> Iterator[DamagedRecord]:
        """Yield records of a process with an argument or a value that is not JSON.

        Reads all texts, AT_ONCE records at a time.

        Index `_id`.
        """
        for name, fields in _TEXTS.items():
            key = {"_id": process_id} if name == schema.PROCESSES else record_range(process_id)
            documents = committed(self._database[name]).find(key, dict.fromkeys(fields, True), batch_size=AT_ONCE)
            for document in documents:
                for field in fields:
                    if problem := _no_json(document, field):
                        kind = definitions.KINDS[name].__name__
                        message = f"{kind} {document['_id']}: its {field} is {problem}"
                        yield DamagedRecord(document["_id"], message, (field,), kind)


def _no_json(document: Document, field: str) -> str | None:
    """Return why the text of a field is not JSON; None if it is. `find` reports fields that are not text."""
    value: Any = document
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, str):
        return None
    try:
        json.loads(value)
    except (ValueError, RecursionError) as error:
        return f"not valid JSON: {str(error)[:100]}"
    return None


@translated
class Mending:
    """Updates that mend one damaged record of any collection. Reads and writes the primary (`current`)."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def look(self, kind: type[Record], key: Any) -> tuple[DamagedRecord, Document] | None:
        """Return the damage of a record and its document; None if it is readable or missing."""
        document = current(self._database[_COLLECTIONS[kind.__name__]]).find_one({"_id": key})
        if document is None:
            return None
        try:
            decision_of(deepcopy(document)) if kind is Decision else from_document(kind, document)
        except DamagedRecord as damage:
            return damage, document
        return None

    def drop(self, damage: DamagedRecord, document: Document, instead: Document | None = None) -> bool:
        """Unset the unreadable fields of a record, or set them to values from `instead`.

        A live record gets the deadline now. A process's start time is restored from its id. Writes only if the document
        is as it was read.

        Returns:
            Whether the record changed.
        """
        fields: Document = {name: literal(value) for name, value in (instead or {}).items()}
        state = (instead or {}).get("state", document.get("state"))
        if "recoveryTime" in damage.fields and state in _LIVE_STATES[damage.kind]:
            fields["recoveryTime"] = "$$NOW"
        if damage.kind == Process.__name__ and "startedAt" in damage.fields:
            fields["startedAt"] = literal(started_at(damage.record))
        if "endedAt" in damage.fields and document.get("state") in _ENDED:
            fields["endedAt"] = "$$NOW"
        unset_fields = [name for name in damage.fields if name not in fields]
        stages: list[Document] = [{"$set": fields}] if fields else []
        stages += [{"$unset": unset_fields}] if unset_fields else []
        return self._changed(damage, document, stages)

    def put_back(self, damage: DamagedRecord, document: Document) -> bool:
        """Set a finished decision without a readable outcome to waiting, so that its graph enqueues the task again.

        Return whether the decision changed. Writes only if the document is as it was read.
        """
        unset_fields = [*forgotten(Until.NEXT_LIFE), "pass", "recoveryTime", "queuedAt"]
        stages: list[Document] = [{"$set": {"state": DecisionState.WAITING.value}}, {"$unset": unset_fields}]
        return self._changed(damage, document, stages)

    def mend_end(self, damage: DamagedRecord, document: Document) -> bool:
        """Set the end time of a decision to now. Return False if another part of the outcome can't be read either."""
        ended = {**document["outcome"], "finishedAt": None}
        try:
            from_document(Outcome, ended)
        except DamagedRecord as other_damage:
            tell(other_damage)
            return False
        return self._changed(damage, document, [{"$set": {"outcome.finishedAt": "$$NOW", "recoveryTime": "$$NOW"}}])

    def remove(self, damage: DamagedRecord, document: Document) -> bool:
        """Remove a record that is rebuilt from others, if it is as it was read. Return whether it was removed."""
        collection = current(self._database[_COLLECTIONS[damage.kind]])
        return collection.delete_one(_as_it_was(damage, document)).deleted_count == 1

    def _changed(self, damage: DamagedRecord, document: Document, stages: list[Document]) -> bool:
        collection = current(self._database[_COLLECTIONS[damage.kind]])
        changed = collection.update_one(_as_it_was(damage, document), stages, bypass_document_validation=True)
        return changed.modified_count == 1


def _as_it_was(damage: DamagedRecord, document: Document) -> Document:
    """Return a filter for the document with the same state, pass, version and unreadable fields as when it was read."""
    names = dict.fromkeys(("state", "pass", "version", *damage.fields))
    # Compare whole values with `$eq` in an expression. A plain query would treat a stored object as a condition.
    equal_fields = [{"$eq": [f"${name}", literal(document[name])]} for name in names if name in document]
    absent_fields = [{"$eq": [{"$type": f"${name}"}, "missing"]} for name in names if name not in document]
    return {"_id": document["_id"], "$expr": {"$and": [*equal_fields, *absent_fields]}}
