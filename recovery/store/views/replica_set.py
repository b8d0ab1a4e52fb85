"""The members of a replica set, each asked directly: what one says of another is what it heard last, and between
members the network may be cut in any way. Only a member that says so of itself is the primary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from recovery import addresses
from recovery.store.client import Document, open_client

ANSWER_TIMEOUT = 2.0
"""Seconds that a member has for an answer; it gives one in milliseconds."""
BEARS_DATA = ("PRIMARY", "SECONDARY")
TAKES_PART = (*BEARS_DATA, "ARBITER")


@dataclass(frozen=True, slots=True)
class Member:
    """What a member says when it is asked directly."""

    name: str
    """`host:port`."""
    answers: bool
    is_primary: bool = False
    elected: Any = None
    """Id of its election: of two that call themselves primary the later one is."""
    names_primary: str | None = None
    """Whom it takes for the primary."""
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
class Members:
    """All members, by what each of them says."""

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
        """How many could acknowledge one."""
        return sum(one.takes_part and one.state in BEARS_DATA for one in self.seen or ())


def ask_members(client: MongoClient[Document], uri: str) -> Members:
    """Ask all members that are known, and those that they know."""
    known = {f"{host}:{port}" for host, port in client.topology_description.server_descriptions()}
    told = _ask_all(uri, known)
    more = {name for member in told for name in member.knows} - known
    # An address that the configuration does not have is another name of a member, or none.
    configured = {name for member in told for name in member.knows}
    told += _ask_all(uri, more)
    return put_together([one for one in told if not configured or one.name in configured])


def _ask_all(uri: str, names: Iterable[str]) -> list[Member]:
    every = sorted(names)
    if not every:
        return []
    with ThreadPoolExecutor(len(every)) as pool:
        return list(pool.map(lambda name: _ask(uri, name), every))


def _ask(uri: str, name: str) -> Member:
    limit = int(ANSWER_TIMEOUT * 1000)
    limits = {"serverSelectionTimeoutMS": limit, "socketTimeoutMS": limit, "connectTimeoutMS": limit}
    with open_client(addresses.direct(uri, name), **limits) as client:
        try:
            hello = client.admin.command("hello")
        except OperationFailure:
            return Member(name, answers=True)  # it lets nobody in: an arbiter has no users
        except PyMongoError:
            return Member(name, answers=False)
        try:
            status: Document | None = client.admin.command("replSetGetStatus")
        except PyMongoError:
            status = None
    return Member(
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


def put_together(members: Sequence[Member]) -> Members:
    """What all of them say together."""
    answering = [one for one in members if one.answers]
    silent = tuple(one.name for one in members if not one.answers)
    claiming = [one for one in answering if one.is_primary]
    primary = max(claiming, key=lambda one: (one.elected is not None, one.elected), default=None)
    views = ([primary] if primary is not None else answering) if answering else []
    status = next((one.status for one in views if one.status is not None), None)
    named = {one.names_primary for one in answering} & set(silent)
    return Members(
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
