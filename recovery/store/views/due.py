"""What scanners have something to do about, and the time: one question for all of them, where a scan of each asks some.

It costs one look at the first key of each index `deadline`, so the same whether nothing is live or ten million are; but
see `recovery.scan.lookout` for keys that are no longer there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo.database import Database

from recovery.records import DecisionState
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.driver_errors import translated
from recovery.store.expressions import OVERDUE, literal, overdue_since

_QUEUED = "a task that is queued"


@dataclass(frozen=True, slots=True)
class Look:
    """What was found at a moment, by the database's clock."""

    at: datetime
    overdue: Mapping[str, Any]
    """{collection in which a record is overdue: the first deadline of these, which another program may have written};
    of the operations that of one that is live."""
    queued: bool
    """Whether a task is queued: its message may be lost."""

    @property
    def collections(self) -> frozenset[str]:
        """Names of those that there is something to look at in."""
        return frozenset(self.overdue) | ({schema.DECISIONS} if self.queued else set())


@translated
class Due:
    """A view over the collections that scanners look at."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def look(self, since: Mapping[str, datetime] | None = None) -> Look:
        """What is overdue now; of a collection in `since` only by a deadline after that."""
        of_all = dict.fromkeys((schema.DECISIONS, schema.GRAPHS, schema.PROCESSES, schema.SCHEDULES), OVERDUE)
        of_all |= {name: overdue_since(moment) for name, moment in (since or {}).items()}
        of_all |= {schema.OPERATIONS: {"recoveryTime": {"$exists": True}}}
        # One document of nothing: `$documents` would say it, and takes a right that no role of one database gives.
        stages: list[Document] = [{"$match": {"_id": {"$in": []}}}, {"$facet": {"nothing": [{"$limit": 1}]}}]
        stages += [{"$project": {"at": "$$NOW"}}]
        stages += [_union(name, name, query, {"recoveryTime": 1}) for name, query in of_all.items()]
        queued: Document = {"state": DecisionState.QUEUED.value, "actor": {"$gte": ""}}
        stages += [_union(_QUEUED, schema.DECISIONS, queued)]
        first, *rest = self._database[schema.OPERATIONS].aggregate(stages)
        found = {one["_id"]: one.get("recoveryTime") for one in rest}
        return Look(first["at"], {name: found[name] for name in of_all if name in found}, _QUEUED in found)


def _union(what: str, collection: str, query: Document, sort: Document | None = None) -> Document:
    """A stage that adds the first that is found, named as `what` it is."""
    by = [{"$sort": sort}] if sort else []
    pipeline = [{"$match": query}, *by, {"$limit": 1}, {"$project": {"_id": literal(what), "recoveryTime": True}}]
    return {"$unionWith": {"coll": collection, "pipeline": pipeline}}
