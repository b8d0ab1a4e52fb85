"""What scanners have something to do about: one question for all of them, where a scan of each asks some.

It costs one look at the first key of each index `deadline`, so the same whether nothing is live or ten million are.
"""

from __future__ import annotations

from pymongo.database import Database

from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import translated
from recovery.store.expressions import OVERDUE, literal


@translated
class Due:
    """A view over the collections that scanners look at."""

    def __init__(self, database: Database[Document]) -> None:
        self._decisions = current(database[schema.DECISIONS])

    def collections(self) -> frozenset[str]:
        """Names of the collections in which a record is overdue; that of the operations, if one is live."""
        first, *others = (schema.DECISIONS, schema.GRAPHS, schema.PROCESSES, schema.SCHEDULES)
        looks = dict.fromkeys(others, OVERDUE) | {schema.OPERATIONS: {"recoveryTime": {"$exists": True}}}
        stages = _one(first, OVERDUE)
        stages += [{"$unionWith": {"coll": name, "pipeline": _one(name, query)}} for name, query in looks.items()]
        return frozenset(found["_id"] for found in self._decisions.aggregate(stages))


def _one(name: str, query: Document) -> list[Document]:
    return [{"$match": query}, {"$limit": 1}, {"$project": {"_id": literal(name)}}]
