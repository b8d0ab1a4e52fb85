"""What a demo destroys of its own database, as a disaster would: nothing else of ours calls this."""

from __future__ import annotations

import random
from collections.abc import Collection as Many

from pymongo.database import Database

from recovery.store import schema
from recovery.store.batches import batches
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated


@translated
class Destruction:
    """Removes records of one database past all that guards them."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def drop_graphs(self) -> int:
        """Drop the whole collection, its indexes and validator with it; how many there were."""
        graphs = committed(self._database[schema.GRAPHS])
        count = graphs.count_documents({})
        graphs.drop()
        return count

    def remove_some(self, part: float, choose: random.Random) -> dict[str, Many[str]]:
        """Remove this part of the records of every kind, drawn at random; {collection: ids of what is gone}."""
        gone: dict[str, Many[str]] = {}
        for name in schema.OF_PROCESSES:
            collection = committed(self._database[name])
            ids = sorted(document["_id"] for document in collection.find({}, {"_id": True}))
            gone[name] = choose.sample(ids, round(part * len(ids)))
            for some in batches(gone[name]):
                collection.delete_many({"_id": {"$in": some}})
        return gone
