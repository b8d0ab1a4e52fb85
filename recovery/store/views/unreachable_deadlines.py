"""Live records whose deadline is further off than anything that can be asked for: as good as without one.

None of ours: another program wrote them, or an older version that took any time. While all is well there is none, and
asking costs the end of an index.
"""

from __future__ import annotations

from collections.abc import Sequence

from pymongo.database import Database

from recovery.limits import FAR_OFF
from recovery.records import LIVE_DECISIONS, DecisionState, ProcessState
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import translated
from recovery.store.expressions import Expression, after

_UNREACHABLE: Document = {
    "recoveryTime": {"$exists": True},
    "$expr": {"$gt": ["$recoveryTime", after(FAR_OFF)]},
}
_LIVE: dict[str, Document] = {
    schema.DECISIONS: {"state": {"$in": [state.value for state in LIVE_DECISIONS]}},
    schema.GRAPHS: {"notFinished": {"$ne": {}}, "failed": {}},
    schema.PROCESSES: {"state": ProcessState.RUNNING.value},
}
# What is delayed keeps its time, if anybody can wait for it.
_DUE: Expression = {
    "$cond": [
        {"$and": [{"$eq": ["$state", DecisionState.DELAYED.value]}, {"$lte": ["$eta", after(FAR_OFF)]}]},
        {"$max": ["$eta", "$$NOW"]},
        "$$NOW",
    ]
}


@translated
class UnreachableDeadlines:
    """Queries and updates over the collections whose deadlines a scanner looks at. Index `deadline`."""

    def __init__(self, database: Database[Document]) -> None:
        self._collections = {name: current(database[name]) for name in _LIVE}

    def count(self) -> dict[str, int]:
        """{collection: live records with such a deadline}."""
        return {
            name: collection.count_documents(_UNREACHABLE | _LIVE[name], hint="deadline")
            for name, collection in self._collections.items()
        }

    def stamp(self, ids: Sequence[str]) -> int:
        """Bring the deadlines of these records, of whichever collections, to now; how many were so."""
        return sum(
            collection.update_many(
                {"_id": {"$in": list(ids)}, **_UNREACHABLE, **_LIVE[name]}, [{"$set": {"recoveryTime": _DUE}}]
            ).modified_count
            for name, collection in self._collections.items()
        )
