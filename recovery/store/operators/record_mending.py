"""Damaged records: queries that find those with something in them that can't be read (`Damaged`), and updates that mend
them (`Mending`).

An update compares what it judged, and is refused by no validator. A sweep finds damaged records at rest, too.
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
"""Records of which all texts are read at once: each may have 16 MB of them."""
_HAS_DEADLINE: Document = {"recoveryTime": {"$exists": True}}

_TEXTS = {
    schema.PROCESSES: ("args", "result"),
    schema.TASKS: ("args",),
    schema.DECISIONS: ("outcome.value",),
}
"""Fields that hold JSON, by collection."""

_COLLECTIONS: dict[str, str] = {kind.__name__: name for name, kind in definitions.KINDS.items()}
_LIVE_STATES = {
    # One that is finished is applied again, and then at rest.
    Decision.__name__: [state.value for state in DecisionState if state is not DecisionState.WAITING],
    Process.__name__: [ProcessState.RUNNING.value],
}
_ENDED = [state.value for state in ProcessState if state is not ProcessState.RUNNING]


@translated
class Damaged:
    """Queries of all collections: of those that describe processes what is live, of the others all, which are few."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def find(self, limit: int, most: int) -> Iterator[DamagedRecord]:
        """Up to so many of each collection, of those that describe processes among the `most` that are due first.
        Costs 10 µs for each of these."""
        for name, kind in definitions.KINDS.items():
            if name == schema.TASKS:
                continue  # none of them is live
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
        """Records of a process that have a text which is no JSON: an argument or a value. Reads all of them, one at a
        time."""
        for name, fields in _TEXTS.items():
            key = {"_id": process_id} if name == schema.PROCESSES else record_range(process_id)
            found = committed(self._database[name]).find(key, dict.fromkeys(fields, True), batch_size=AT_ONCE)
            for document in found:
                for field in fields:
                    if told := _no_json(document, field):
                        kind = definitions.KINDS[name].__name__
                        message = f"{kind} {document['_id']}: its {field} is {told}"
                        yield DamagedRecord(document["_id"], message, (field,), kind)


def _no_json(document: Document, field: str) -> str | None:
    """Return why a field's text can't be read, if it can't. What is no text is found by `find`."""
    value: Any = document
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, str):
        return None
    try:
        json.loads(value)
    except (ValueError, RecursionError) as error:
        return f"no JSON: {str(error)[:100]}"
    return None


@translated
class Mending:
    """Updates of any collection."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def look(self, kind: type[Record], key: Any) -> tuple[DamagedRecord, Document] | None:
        """What of a record can't be read, and its document; None if it can be, or is not there."""
        document = current(self._database[_COLLECTIONS[kind.__name__]]).find_one({"_id": key})
        if document is None:
            return None
        try:
            decision_of(deepcopy(document)) if kind is Decision else from_document(kind, document)
        except DamagedRecord as damage:
            return damage, document
        return None

    def drop(self, damage: DamagedRecord, document: Document, instead: Document | None = None) -> bool:
        """Drop what can't be read of a record, while that is what it was; `instead` has other values for some of it.

        What is live gets a deadline, now.
        """
        fields: Document = {name: literal(value) for name, value in (instead or {}).items()}
        state = (instead or {}).get("state", document.get("state"))
        if "recoveryTime" in damage.fields and state in _LIVE_STATES[damage.kind]:
            fields["recoveryTime"] = "$$NOW"
        if damage.kind == Process.__name__ and "startedAt" in damage.fields:
            fields["startedAt"] = literal(started_at(damage.record))
        if "endedAt" in damage.fields and document.get("state") in _ENDED:
            fields["endedAt"] = "$$NOW"
        gone = [name for name in damage.fields if name not in fields]
        stages: list[Document] = [{"$set": fields}] if fields else []
        stages += [{"$unset": gone}] if gone else []
        return self._changed(damage, document, stages)

    def put_back(self, damage: DamagedRecord, document: Document) -> bool:
        """finished, with no outcome that can be read → waiting: it is queued again by its graph, where it is open."""
        gone = [*forgotten(Until.NEXT_LIFE), "pass", "recoveryTime", "queuedAt"]
        stages: list[Document] = [{"$set": {"state": DecisionState.WAITING.value}}, {"$unset": gone}]
        return self._changed(damage, document, stages)

    def mend_end(self, damage: DamagedRecord, document: Document) -> bool:
        """Set the time of an end to now, if that is all that can't be read of its outcome."""
        ended = {**document["outcome"], "finishedAt": None}
        try:
            from_document(Outcome, ended)
        except DamagedRecord as rest:
            tell(rest)
            return False
        return self._changed(damage, document, [{"$set": {"outcome.finishedAt": "$$NOW", "recoveryTime": "$$NOW"}}])

    def remove(self, damage: DamagedRecord, document: Document) -> bool:
        """Remove a record that is made again from others, while it is as it was."""
        collection = current(self._database[_COLLECTIONS[damage.kind]])
        return collection.delete_one(_as_it_was(damage, document)).deleted_count == 1

    def _changed(self, damage: DamagedRecord, document: Document, stages: list[Document]) -> bool:
        collection = current(self._database[_COLLECTIONS[damage.kind]])
        changed = collection.update_one(_as_it_was(damage, document), stages, bypass_document_validation=True)
        return changed.modified_count == 1


def _as_it_was(damage: DamagedRecord, document: Document) -> Document:
    """The record as long as what could not be read is what stands there, and its state."""
    names = dict.fromkeys(("state", "pass", "version", *damage.fields))
    # As a whole value and not as a condition, which an object might be taken for.
    same = [{"$eq": [f"${name}", literal(document[name])]} for name in names if name in document]
    absent = [{"$eq": [{"$type": f"${name}"}, "missing"]} for name in names if name not in document]
    return {"_id": document["_id"], "$expr": {"$and": [*same, *absent]}}
