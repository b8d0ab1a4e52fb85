"""Updates of requeue budgets: each actor with a `requeue_rate` has one budget for the whole cluster.

A budget is a token bucket in the record of the actor's queue. Taking from it is one atomic update that uses the
database's clock, so the scanners and operations of all workers together keep the rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection

from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import translated

MOST = 1e9
"""Maximum number of tasks in a budget. A larger number was written by another program."""


@dataclass(frozen=True, slots=True)
class Granted:
    """What a budget grants for a page of tasks."""

    count: int
    """Number of tasks of this page that may be requeued now."""
    again: float
    """Number of tasks that were postponed at least twice and are to be requeued before the tasks of this page."""
    fresh: float
    """Number of tasks that were postponed once and are to be requeued before the tasks of this page."""


@translated
class RequeueRates:
    """The budgets in the collection `queues`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current = current(collection)

    def take(
        self, actor: str, rate: float, interval: float, *, again: int, fresh: int, counts_left: bool = True
    ) -> Granted:
        """Take tokens from an actor's budget for tasks that are to be requeued, and count the tasks that must be
        postponed.

        Written to the primary alone: if a failover undoes it, the rate is exceeded once by this amount.

        Args:
            actor: The actor, whose queue has the same name.
            rate: Tasks per second.
            interval: Maximum seconds for which unused budget accumulates. The budget's limit is at least one task.
            again: Number of tasks that were postponed before. They are requeued first.
            fresh: Number of tasks that were not postponed before.
            counts_left: Whether to count the tasks that may not be requeued now as postponed, before later tasks.
        """
        capacity = max(rate * interval, 1.0)
        seconds = {"$divide": [{"$subtract": ["$$NOW", "$pace.at"]}, 1000]}
        is_date: Document = {"$eq": [{"$type": "$pace.at"}, "date"]}
        earned = {"$cond": [is_date, {"$multiply": [rate, {"$max": [0, seconds]}]}, 0]}

        def remaining_backlog(name: str) -> Document:
            return {"$max": [0, {"$subtract": [_number(name, 0), earned]}]}

        postponed_again: Any = {"$max": [0, {"$subtract": [again, "$pace.granted"]}]}
        postponed_fresh: Any = {"$min": [fresh, {"$subtract": [again + fresh, "$pace.granted"]}]}
        if not counts_left:
            postponed_again = postponed_fresh = 0
        refilled = {
            "at": "$$NOW",
            "allowed": {"$min": [capacity, {"$add": [_number("allowed", capacity), earned]}]},
            "again": remaining_backlog("again"),
            "fresh": remaining_backlog("fresh"),
        }
        stages: list[Document] = [
            {"$set": {"pace": refilled}},
            {"$set": {"pace.granted": {"$min": [again + fresh, {"$floor": "$pace.allowed"}]}}},
            {
                "$set": {
                    "pace.allowed": {"$subtract": ["$pace.allowed", "$pace.granted"]},
                    "pace.again": {"$add": ["$pace.again", postponed_again]},
                    "pace.fresh": {"$add": ["$pace.fresh", postponed_fresh]},
                }
            },
        ]
        document: Any = self._current.find_one_and_update(
            {"_id": actor}, stages, projection={"pace": True}, upsert=True, return_document=True
        )
        pace, count = document["pace"], int(document["pace"]["granted"])
        if not counts_left:
            return Granted(count, pace["again"], pace["fresh"])
        return Granted(
            count,
            again=pace["again"] - max(0, again - count),
            fresh=pace["fresh"] - min(fresh, again + fresh - count),
        )


def _number(name: str, default: float) -> Document:
    """Return a field of the budget, or the default if it is absent or out of range."""
    field = f"$pace.{name}"
    is_valid = {"$and": [{"$isNumber": field}, {"$gte": [field, 0]}, {"$lte": [field, MOST]}]}
    return {"$cond": [is_valid, field, default]}
