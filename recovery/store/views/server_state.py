"""The state of a MongoDB server (`MongoServer`) and of its replica set's members, for `recovery doctor`.

Each member is asked directly, because what a member reports about another may be outdated, and the network between
members may be partitioned. Only a member that reports itself as primary counts as the primary.
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
"""Seconds to wait for a member's answer, which usually takes milliseconds."""
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
    """Id of its election. If two members claim to be the primary, the later election wins."""
    names_primary: str | None = None
    """The member that it considers the primary."""
    knows: tuple[str, ...] = ()
    """All members in its configuration."""
    status: Document | None = None
    """Its `replSetGetStatus`; None without the right to run it."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member as seen by another member."""

    name: str
    state: str
    is_reached: bool
    takes_part: bool
    """Whether it is reachable and is a primary, secondary or arbiter."""


@dataclass(frozen=True, slots=True)
class ReplicaSetState:
    """The state of all members of a replica set, combined from their answers."""

    primary: str | None
    """The member that reports itself as primary."""
    named: str | None
    """A member that does not answer but that others consider the primary."""
    answering: tuple[str, ...]
    silent: tuple[str, ...]
    """Members that do not answer this program."""
    seen: tuple[MemberView, ...] | None
    """The members as seen by the primary, or by another member that answers; None without the right to ask."""
    majority: int
    """Number of data-bearing members that must acknowledge a write."""

    @property
    def acknowledging(self) -> int:
        """Number of data-bearing members that could acknowledge a write."""
        return sum(member.takes_part and member.state in BEARS_DATA for member in self.seen or ())


def ask_members(client: MongoClient[Document], uri: str) -> ReplicaSetState:
    """Ask all known members, and the members that they know."""
    known = {f"{host}:{port}" for host, port in client.topology_description.server_descriptions()}
    answers = _ask_all(uri, known)
    unasked = {name for member in answers for name in member.knows} - known
    # An address outside the configuration is an alias of a member, or not a member.
    configured = {name for member in answers for name in member.knows}
    answers += _ask_all(uri, unasked)
    return put_together([member for member in answers if not configured or member.name in configured])


def _ask_all(uri: str, names: Iterable[str]) -> list[SetMember]:
    sorted_names = sorted(names)
    if not sorted_names:
        return []
    with ThreadPoolExecutor(len(sorted_names)) as pool:
        return list(pool.map(lambda name: _ask(uri, name), sorted_names))


def _ask(uri: str, name: str) -> SetMember:
    limit = int(ANSWER_TIMEOUT * 1000)
    limits = {"serverSelectionTimeoutMS": limit, "socketTimeoutMS": limit, "connectTimeoutMS": limit}
    with open_client(addresses.direct(uri, name), **limits) as client:
        try:
            hello = client.admin.command("hello")
        except OperationFailure:
            return SetMember(name, answers=True)  # it requires a login that it does not accept: an arbiter has no users
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
    """Return the members in a status. It includes hidden members, which `hello` does not return."""
    return [member["name"] for member in (status or {}).get("members", ()) if "name" in member]


def put_together(members: Sequence[SetMember]) -> ReplicaSetState:
    """Combine the answers of all members."""
    answering = [member for member in members if member.answers]
    silent = tuple(member.name for member in members if not member.answers)
    claiming = [member for member in answering if member.is_primary]
    primary = max(claiming, key=lambda member: (member.elected is not None, member.elected), default=None)
    observers = ([primary] if primary is not None else answering) if answering else []
    status = next((member.status for member in observers if member.status is not None), None)
    named = {member.names_primary for member in answering} & set(silent)
    return ReplicaSetState(
        primary=primary.name if primary is not None else None,
        named=min((name for name in named if name is not None), default=None) if primary is None else None,
        answering=tuple(member.name for member in answering),
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
    """Queries to the MongoDB server of one database."""

    def __init__(self, database: Database[Document], uri: str) -> None:
        self._database, self._uri = database, uri

    def version(self) -> str:
        """Return the server's version."""
        return str(self._database.client.server_info()["version"])

    def takes_zlib(self) -> bool:
        """Return whether the server accepts zlib compression, which is its default."""
        return "zlib" in self._database.client.admin.command("hello", compression=["zlib"]).get("compression", ())

    def clock(self) -> tuple[timedelta, timedelta]:
        """Return how far the primary's clock is ahead of this machine's clock, and the uncertainty of that."""
        sent_at = time.time()
        server_time = told_by(self._database)
        received_at = time.time()
        middle = datetime.fromtimestamp((sent_at + received_at) / 2, UTC)
        return server_time - middle, timedelta(seconds=(received_at - sent_at) / 2)

    def members(self) -> ReplicaSetState:
        """Ask each member of the replica set directly. Does not raise if a member does not answer.

        How members see each other is included only with the right `replSetGetStatus` (role clusterMonitor).
        """
        return ask_members(self._database.client, self._uri)

    def acknowledge(self, seconds: float) -> float:
        """Perform a majority write that changes nothing. Return the seconds until it was acknowledged.

        An update that matches no record still waits for all earlier writes, journaled by a majority.

        Args:
            seconds: Maximum seconds to wait for the majority.

        Raises:
            StoreUnavailable: The write was not acknowledged in time.
        """
        concern = WriteConcern("majority", wtimeout=round(seconds * 1000), j=True)
        started = time.perf_counter()
        no_record: Document = {"_id": {"$in": []}}  # matches no record
        scanners = self._database[schema.SCANNERS].with_options(write_concern=concern)
        scanners.update_one(no_record, {"$unset": {"ranAt": ""}})
        return time.perf_counter() - started

    def not_followed(self) -> list[str]:
        """Return the concerns of the address or the cluster that our handles override: see `concerns.overridden`."""
        return overridden(self._database.client)

    def rights(self) -> roles.HeldRights | None:
        """Return the rights of our user; None if the server requires no login."""
        return roles.held(self._database)
