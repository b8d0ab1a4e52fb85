"""How a MongoDB is, by what it tells of itself: for `recovery doctor`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pymongo import ReadPreference, WriteConcern
from pymongo.database import Database
from pymongo.errors import OperationFailure

from recovery.store import roles, schema
from recovery.store.client import Document
from recovery.store.clock import told_by
from recovery.store.concerns import overridden
from recovery.store.driver_errors import translated

_UNAUTHORIZED, _NO_SUCH_COMMAND = 13, 59
_BEARS_DATA = ("PRIMARY", "SECONDARY")


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a replica set, as one of them sees the others."""

    primary: str | None
    up: tuple[str, ...]
    """`host:port (STATE)` of those that answer and take part: primary, secondaries, arbiters."""
    down: tuple[str, ...]
    """The same of the others."""
    acknowledging: int
    """Members up that can acknowledge a write."""
    majority: int
    """How many of them an acknowledged write needs."""


@translated
class Server:
    """Asks the MongoDB of one database."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def version(self) -> str:
        """The server's version."""
        return str(self._database.client.server_info()["version"])

    def takes_zlib(self) -> bool:
        """Whether the server takes messages that are compressed by zlib, as it does unless told not to."""
        return "zlib" in self._database.client.admin.command("hello", compression=["zlib"]).get("compression", ())

    def clock(self) -> tuple[timedelta, timedelta]:
        """How far the primary's clock is ahead of this machine's, and by how much that may be wrong."""
        before = time.time()
        told = told_by(self._database)
        after = time.time()
        middle = datetime.fromtimestamp((before + after) / 2, UTC)
        return told - middle, timedelta(seconds=(after - before) / 2)

    def members(self) -> Members | None:
        """The members of the replica set; None where they can't be asked for, without the right to.

        The right is `replSetGetStatus`, which the role clusterMonitor has.
        """
        try:
            status = self._database.client.admin.command(
                "replSetGetStatus", read_preference=ReadPreference.SECONDARY_PREFERRED
            )
        except OperationFailure as error:
            if error.code in (_UNAUTHORIZED, _NO_SUCH_COMMAND) or "not supported" in str(error):
                return None
            raise
        return read_members(status)

    def acknowledge(self, seconds: float) -> float:
        """Have a write acknowledged by a majority and its journals that changes nothing; how long it took, in seconds.

        An update that matches no record waits for all writes before it, as one that matches does. Raises
        StoreUnavailable.
        """
        concern = WriteConcern("majority", wtimeout=round(seconds * 1000), j=True)
        began = time.perf_counter()
        nothing: Document = {"_id": {"$in": []}}  # whatever ids there are
        scanners = self._database[schema.SCANNERS].with_options(write_concern=concern)
        scanners.update_one(nothing, {"$unset": {"ranAt": ""}})
        return time.perf_counter() - began

    def not_followed(self) -> list[str]:
        """What the address, or the cluster for all its clients, says of concerns: see `concerns.overridden`."""
        return overridden(self._database.client)

    def rights(self) -> roles.Held | None:
        """What our user may do; None where nobody logs in."""
        return roles.held(self._database)


def read_members(status: Document) -> Members:
    """What `replSetGetStatus` says."""
    up: list[str] = []
    down: list[str] = []
    acknowledging, primary = 0, None
    for member in status["members"]:
        state = member["stateStr"]
        takes_part = member.get("health") == 1 and state in (*_BEARS_DATA, "ARBITER")
        (up if takes_part else down).append(f"{member['name']} ({state})")
        acknowledging += takes_part and state in _BEARS_DATA
        primary = member["name"] if takes_part and state == "PRIMARY" else primary
    majority = status.get("writeMajorityCount") or len(status["members"]) // 2 + 1
    return Members(primary, tuple(up), tuple(down), acknowledging, majority)
