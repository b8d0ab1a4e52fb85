"""Records with something in them that can't be read, for `recovery doctor`. A sweep finds those at rest, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pymongo.database import Database

from recovery.errors import DamagedRecord
from recovery.store import definitions, schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import record_range
from recovery.store.record_reading import read, wrong_types

AT_ONCE = 10
"""Records of which all texts are read at once: each may have 16 MB of them."""
_LIVE: Document = {"recoveryTime": {"$exists": True}}


_TEXTS = {
    schema.PROCESSES: ("args", "result"),
    schema.TASKS: ("args",),
    schema.DECISIONS: ("outcome.value",),
}
"""Fields that hold JSON."""


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
                stages: list[Document] = [{"$match": _LIVE}, {"$limit": most}, {"$match": wrong}, {"$limit": limit}]
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
    """Why a field's text can't be read, if it can't; what is no text is another's affair."""
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
