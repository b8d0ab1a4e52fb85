"""How a MongoDB is, by what it tells of itself (`MongoServer`), and the members of its replica set: for `recovery
doctor`.

Each member is asked directly: what one says of another is what it heard last, and between members the network may be
cut in any way. Only a member that says so of itself is the primary.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import MongoClient, WriteConcern
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError

from recovery import addresses
from recovery.store import roles, schema
from recovery.store.client import Document, open_client
from recovery.store.clock import told_by
from recovery.store.concerns import overridden
from recovery.store.driver_errors import translated

ANSWER_TIMEOUT = 2.0
"""Seconds that a member has for an answer; it gives one in milliseconds."""
BEARS_DATA = ("PRIMARY", "SECONDARY")
TAKES_PART = (*BEARS_DATA, "ARBITER")


@dataclass(frozen=True, slots=True)
class SetMember:
    """The answers of a member that was asked directly."""

    name: str
    """`host:port`."""
    answers: bool
    is_primary: bool = False
    elected: Any = None
    """Id of its election: of two that call themselves primary the later one is."""
    names_primary: str | None = None
    """Which member it takes for the primary."""
    knows: tuple[str, ...] = ()
    """All members, by its configuration."""
    status: Document | None = None
    """Its `replSetGetStatus`; None without the right to ask for it."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member as another one sees it."""

    name: str
    state: str
    is_reached: bool
    takes_part: bool
    """Whether it is reached, and is primary, secondary or arbiter."""


@dataclass(frozen=True, slots=True)
class ReplicaSetState:
    """All members of a replica set, by the answers of each."""

    primary: str | None
    """The one that says so of itself."""
    named: str | None
    """Whom others take for the primary though it does not answer."""
    answering: tuple[str, ...]
    silent: tuple[str, ...]
    """Those that do not answer whoever asks here."""
    seen: tuple[MemberView, ...] | None
    """As the primary sees them, or else one that answers; None where nobody may ask for it."""
    majority: int
    """Members that bear data and are needed to acknowledge a write."""

    @property
    def acknowledging(self) -> int:
        """How many members that bear data could acknowledge a write."""
        return sum(one.takes_part and one.state in BEARS_DATA for one in self.seen or ())


def ask_members(client: MongoClient[Document], uri: str) -> ReplicaSetState:
    """Ask all members that are known, and the members that they know of."""
    known = {f"{host}:{port}" for host, port in client.topology_description.server_descriptions()}
    told = _ask_all(uri, known)
    more = {name for member in told for name in member.knows} - known
    # An address that the configuration does not have is another name of a member, or none.
    configured = {name for member in told for name in member.knows}
    told += _ask_all(uri, more)
    return put_together([one for one in told if not configured or one.name in configured])


def _ask_all(uri: str, names: Iterable[str]) -> list[SetMember]:
    every = sorted(names)
    if not every:
        return []
    with ThreadPoolExecutor(len(every)) as pool:
        return list(pool.map(lambda name: _ask(uri, name), every))


def _ask(uri: str, name: str) -> SetMember:
    limit = int(ANSWER_TIMEOUT * 1000)
    limits = {"serverSelectionTimeoutMS": limit, "socketTimeoutMS": limit, "connectTimeoutMS": limit}
    with open_client(addresses.direct(uri, name), **limits) as client:
        try:
            hello = client.admin.command("hello")
        except OperationFailure:
            return SetMember(name, answers=True)  # it lets nobody in: an arbiter has no users
        except PyMongoError:
            return SetMember(name, answers=False)
        try:
            status: Document | None = client.admin.command("replSetGetStatus")
        except PyMongoError:
            status = None
    return SetMember(
        name=name,
        answers=True,
        is_primary=bool(hello.get("isWritablePrimary")),
        elected=hello.get("electionId"),
        names_primary=hello.get("primary"),
        knows=tuple({*_named(hello, "hosts", "passives", "arbiters"), *_hidden(status)}),
        status=status,
    )


def _named(hello: Document, *fields: str) -> list[str]:
    return [name for field in fields for name in hello.get(field, ())]


def _hidden(status: Document | None) -> list[str]:
    """Members that `hello` does not name, among those that it does."""
    return [one["name"] for one in (status or {}).get("members", ()) if "name" in one]


def put_together(members: Sequence[SetMember]) -> ReplicaSetState:
    """Combine the answers of all members."""
    answering = [one for one in members if one.answers]
    silent = tuple(one.name for one in members if not one.answers)
    claiming = [one for one in answering if one.is_primary]
    primary = max(claiming, key=lambda one: (one.elected is not None, one.elected), default=None)
    views = ([primary] if primary is not None else answering) if answering else []
    status = next((one.status for one in views if one.status is not None), None)
    named = {one.names_primary for one in answering} & set(silent)
    return ReplicaSetState(
        primary=primary.name if primary is not None else None,
        named=min((name for name in named if name is not None), default=None) if primary is None else None,
        answering=tuple(one.name for one in answering),
        silent=silent,
        seen=tuple(map(_seen, status["members"])) if status is not None else None,
        majority=_majority(status) if status is not None else len(members) // 2 + 1,
    )


def _seen(member: Mapping[str, Any]) -> MemberView:
    reached, state = member.get("health") == 1, str(member["stateStr"])
    return MemberView(str(member["name"]), state, reached, reached and state in TAKES_PART)


def _majority(status: Mapping[str, Any]) -> int:
    return int(status.get("writeMajorityCount") or len(status["members"]) // 2 + 1)


@translated
class MongoServer:
    """Questions to the MongoDB of one database."""

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

    def members(self) -> ReplicaSetState:
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

    def rights(self) -> roles.HeldRights | None:
        """What our user may do; None where nobody logs in."""
        return roles.held(self._database)
