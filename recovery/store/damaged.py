"""Records with something in them that can't be read, for `recovery doctor`. A sweep finds those at rest, too."""

from __future__ import annotations

from collections.abc import Iterator

from pymongo.database import Database

from recovery.errors import DamagedRecord
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.reading import read
from recovery.store.snapshots import OF_PROCESSES
from recovery.store.wrong_types import wrong_types

_LIVE: Document = {"recoveryTime": {"$exists": True}}


class Damaged:
    """Queries of all collections: of those that describe processes what is live, of the others all, which are few."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def find(self, limit: int) -> Iterator[DamagedRecord]:
        """Up to so many of each collection. Costs what is live, 2 µs each."""
        for name, kind in schema.KINDS.items():
            if name == schema.TASKS:
                continue  # none of them is live
            query: Document = {"$or": wrong_types(kind), **(_LIVE if name in OF_PROCESSES else {})}
            found = committed(self._database[name]).find(query).limit(limit)
            yield from read(kind, found.hint("deadline") if name in OF_PROCESSES else found).damaged
