"""The budgets of requeues: one for each actor with a `requeue_rate`, for the whole cluster.

A budget is a token bucket in the record of the actor's queue. Taking from it is one atomic update by the database's
clock, so the scanners and operations of all workers together keep the rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection

from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import translated

MOST = 1e9
"""Tasks that a budget counts at most. More are another program's."""


@dataclass(frozen=True, slots=True)
class Granted:
    """What a budget gives for a page of tasks."""

    count: int
    """Tasks that may be requeued now."""
    again: float
    """Tasks that were postponed a second time and are to be requeued before those of this page."""
    fresh: float
    """Tasks that were postponed once and are to be requeued before those of this page."""


@translated
class RequeueRates:
    """Updates of the budgets in the collection `queues`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current = current(collection)

    def take(
        self, actor: str, rate: float, interval: float, *, again: int, fresh: int, counts_left: bool = True
    ) -> Granted:
        """Take from an actor's budget for tasks that are to be requeued, and note how many are postponed.

        Restorable: what a failover takes back was requeued, and the rate is exceeded once by so much.

        Args:
            actor: The actor, which is also its queue's name.
            rate: Tasks a second.
            interval: Seconds for which a budget is saved up at most; but it is never less than one task.
            again: How many of the tasks were postponed before. They come first.
            fresh: How many were not.
            counts_left: Whether those that may not be requeued now are postponed, and come before later ones.
        """
        most = max(rate * interval, 1.0)
        seconds = {"$divide": [{"$subtract": ["$$NOW", "$pace.at"]}, 1000]}
        is_date: Document = {"$eq": [{"$type": "$pace.at"}, "date"]}
        earned = {"$cond": [is_date, {"$multiply": [rate, {"$max": [0, seconds]}]}, 0]}

        def worked_off(name: str) -> Document:
            return {"$max": [0, {"$subtract": [_number(name, 0), earned]}]}

        left_again: Any = {"$max": [0, {"$subtract": [again, "$pace.granted"]}]}
        left_fresh: Any = {"$min": [fresh, {"$subtract": [again + fresh, "$pace.granted"]}]}
        if not counts_left:
            left_again = left_fresh = 0
        refilled = {
            "at": "$$NOW",
            "allowed": {"$min": [most, {"$add": [_number("allowed", most), earned]}]},
            "again": worked_off("again"),
            "fresh": worked_off("fresh"),
        }
        stages: list[Document] = [
            {"$set": {"pace": refilled}},
            {"$set": {"pace.granted": {"$min": [again + fresh, {"$floor": "$pace.allowed"}]}}},
            {
                "$set": {
                    "pace.allowed": {"$subtract": ["$pace.allowed", "$pace.granted"]},
                    "pace.again": {"$add": ["$pace.again", left_again]},
                    "pace.fresh": {"$add": ["$pace.fresh", left_fresh]},
                }
            },
        ]
        after: Any = self._current.find_one_and_update(
            {"_id": actor}, stages, projection={"pace": True}, upsert=True, return_document=True
        )
        pace, count = after["pace"], int(after["pace"]["granted"])
        if not counts_left:
            return Granted(count, pace["again"], pace["fresh"])
        return Granted(
            count,
            again=pace["again"] - max(0, again - count),
            fresh=pace["fresh"] - min(fresh, again + fresh - count),
        )


def _number(name: str, default: float) -> Document:
    """Return a field of the budget; the default if it is absent, or another program's."""
    field = f"$pace.{name}"
    can_be = {"$and": [{"$isNumber": field}, {"$gte": [field, 0]}, {"$lte": [field, MOST]}]}
    return {"$cond": [can_be, field, default]}
