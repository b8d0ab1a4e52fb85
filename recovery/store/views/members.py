"""What a heartbeat looks at: all workers, what is blocked, and when somebody scanned. One question."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.database import Database

from recovery.records import Worker
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import translated
from recovery.store.expressions import age, past_or_null
from recovery.store.record_reading import readable

_BRIEF: Document = dict.fromkeys(("recoveryTime", "name", "host", "pid", "pidStarted"), True)

_HAS_RUN = {"$ne": [past_or_null("$ranAt"), None]}
_AGO: Document = {"$cond": [_HAS_RUN, {"$divide": [age("$ranAt"), 1000]}, None]}


@dataclass(frozen=True, slots=True)
class Look:
    """What was found."""

    deadlines: Mapping[str, Any]
    """{worker: what stands as deadline in its record}; of another program's perhaps no date."""
    neighbours: Sequence[Worker]
    """Workers that said they run on the host that was asked for, without what they serve."""
    blocked: Sequence[str]
    """Names of the actors that are blocked."""
    scanned_ago: float
    """Seconds since any worker noted a scan; infinite if none ever did."""


@translated
class Members:
    """A view over workers, actors and scanners."""

    def __init__(self, database: Database[Document]) -> None:
        self._workers = current(database[schema.WORKERS])

    def look(self, host: str) -> Look:
        """All of it as it is now. There are as many documents as workers, actors and scanners."""
        # Not only those whose name is one: that would be asked of the index, which costs twice as much.
        blocked: Document = {"blockedAt": {"$ne": None}}
        actors = [{"$match": blocked}, {"$project": {"_id": False, "blocked": "$_id"}}]
        stages: list[Document] = [{"$project": _BRIEF}]
        stages += [
            {"$unionWith": {"coll": schema.ACTORS, "pipeline": actors}},
            {"$unionWith": {"coll": schema.SCANNERS, "pipeline": [{"$project": {"_id": False, "scannedAgo": _AGO}}]}},
        ]
        found = list(self._workers.aggregate(stages))
        there = [one for one in found if isinstance(one.get("_id"), str)]
        return Look(
            deadlines={one["_id"]: one.get("recoveryTime") for one in there},
            neighbours=list(readable(Worker, [one for one in there if one.get("host") == host])),
            blocked=[one["blocked"] for one in found if isinstance(one.get("blocked"), str)],
            scanned_ago=min(
                (one["scannedAgo"] for one in found if one.get("scannedAgo") is not None), default=math.inf
            ),
        )
