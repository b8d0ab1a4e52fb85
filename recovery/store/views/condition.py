"""How a MongoDB is, by what it tells of itself: for `recovery doctor`."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from pymongo import WriteConcern
from pymongo.database import Database

from recovery.store import roles, schema
from recovery.store.client import Document
from recovery.store.clock import told_by
from recovery.store.concerns import overridden
from recovery.store.driver_errors import translated
from recovery.store.views.replica_set import Members, ask_members


@translated
class Server:
    """Asks the MongoDB of one database."""

    def __init__(self, database: Database[Document], uri: str) -> None:
        self._database, self._uri = database, uri

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

    def members(self) -> Members:
        """The members of the replica set, each asked directly. Does not raise for one that is away.

        To see how they see each other takes the right `replSetGetStatus`, which the role clusterMonitor has.
        """
        return ask_members(self._database.client, self._uri)

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
