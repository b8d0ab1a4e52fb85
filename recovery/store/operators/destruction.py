"""What a demo destroys of its own database, as a disaster would: nothing else of ours calls this."""

from __future__ import annotations

import random
from collections.abc import Collection as Many
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pymongo.database import Database

from recovery.records import DecisionState
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.splitting import batches


@dataclass(frozen=True, slots=True)
class Removed:
    """What is gone."""

    ids: Mapping[str, Many[str]]
    """{collection: ids}."""
    finished: frozenset[str]
    """Of the decisions those that were finished."""


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

    def remove_some(self, part: float, choose: random.Random) -> Removed:
        """Remove this part of the records of every kind, drawn at random."""
        gone, finished = dict[str, Many[str]](), set[str]()
        for name in schema.OF_PROCESSES:
            collection = committed(self._database[name])
            ids = sorted(document["_id"] for document in collection.find({}, {"_id": True}))
            gone[name] = choose.sample(ids, round(part * len(ids)))
            for some in batches(gone[name]):
                if name == schema.DECISIONS:
                    finished |= self._remove_decisions(some)
                else:
                    collection.delete_many({"_id": {"$in": some}})
        return Removed(gone, frozenset(finished))

    def _remove_decisions(self, ids: Sequence[str]) -> set[str]:
        """Remove these; which of them were finished by then. One that is finishes no more, and one that is not is
        removed only as such."""
        decisions, finished, left = committed(self._database[schema.DECISIONS]), set[str](), set(ids)
        while left:
            is_over: Document = {"_id": {"$in": [*left]}, "state": DecisionState.FINISHED.value}
            over = {document["_id"] for document in current(decisions).find(is_over, {"_id": True})}
            decisions.delete_many({"_id": {"$in": [*over]}})
            finished |= over
            left -= over
            decisions.delete_many({"_id": {"$in": [*left]}, "state": {"$ne": DecisionState.FINISHED.value}})
            left = {one["_id"] for one in current(decisions).find({"_id": {"$in": [*left]}}, {"_id": True})}
        return finished
