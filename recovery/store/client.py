"""Connections to MongoDB: one client per process and address, checked once.

A client must not cross a fork: after one, the child makes its own. pymongo is told not to try writes again: the server
would keep a record of each for that, a tenth of what a task costs, and ours is the better retry. Every step may run
twice, lost replies included, so what somebody waits for is tried again for as long as it may be useful
(`engine.outages`), and the rest is found overdue.
"""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Sequence
from contextvars import Context
from functools import lru_cache, partial
from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.synchronous import monitor
from pymongo.topology_description import TopologyDescription

from recovery import certificates, handshake
from recovery.addresses import direct, public, read, told
from recovery.errors import (
    CertificateRefused,
    PrimaryUnavailable,
    ServerError,
    ServerRefused,
    ServerSharded,
    ServerTooOld,
    ServerUnavailable,
    ServerUnfit,
    SettingsError,
)
from recovery.store.driver_errors import is_transient

Document = dict[str, Any]
OLDEST_SERVER = (6, 0)
ASK_TIMEOUT_MS = 1000
"""Of a server that answered a moment ago, to be asked what it is."""


def client(uri: str, within: float | None = None) -> MongoClient[Document]:
    """This process's client for `uri`; with `within` another one, whose connections are closed where they are not
    made, or not answered, within so many seconds."""
    return _client(uri, os.getpid(), within)


@lru_cache(maxsize=8)
def _client(uri: str, _pid: int, within: float | None = None) -> MongoClient[Document]:
    # Given as options they would win over what the address says.
    defaults: dict[str, Any] = {
        # A failover takes some 10 s.
        "serverSelectionTimeoutMS": 20_000,
        "retryWrites": False,
        # A primary that is frozen, or whose machine is gone, breaks no connection. pymongo gives up those to it once it
        # did not answer for both of these together; by its defaults that is 30 s.
        "heartbeatFrequencyMS": 5_000,
        "connectTimeoutMS": 5_000,
        # Asked at each choice of a server, so that who comes to a mongos is told, whether it was checked before or not.
        "server_selector": partial(no_mongos, uri),
    }
    options: dict[str, Any] = {name: value for name, value in defaults.items() if name.lower() not in uri.lower()}
    if within is not None:
        limit = int(within * 1000)
        options |= {
            "serverSelectionTimeoutMS": limit,
            "socketTimeoutMS": limit,
            # Once to connect, and once for the first answer.
            "connectTimeoutMS": limit // 2,
            # Asked now and then instead of told at once: one connection less to each member.
            "serverMonitoringMode": "poll",
            "connect": False,
        }
    # MongoDB's dates go further than Python's. One that does would be an error of the whole page that it is in: it is
    # read as the last that there is, or the first.
    return open_client(uri, tz_aware=True, datetime_conversion="DATETIME_CLAMP", appname="recovery-workers", **options)


def open_client(uri: str, **options: Any) -> MongoClient[Document]:
    """A client with these options, or SettingsError for an address that pymongo can't use."""
    if (tls := certificates.of_mongodb(uri)) is not None:
        tls.check()
    try:
        with warnings.catch_warnings():
            # By itself it passes over an option that it doesn't know, or whose value can't be.
            warnings.simplefilter("error", UserWarning)
            return MongoClient(uri, **options)
    except (PyMongoError, LookupError, ValueError, TypeError, OSError, UserWarning) as error:
        raise SettingsError(f"RECOVERY_MONGO_URI={public(uri)}: {told(error, uri)}") from None


def wait_for_no_monitor() -> None:
    """End this process without waiting for pymongo's monitors, which look up twice a second: half of a short command's
    time. They are daemons, and nothing of ours is on their connections."""
    if (shutdown := getattr(monitor, "_shutdown_resources", None)) is not None:
        atexit.unregister(shutdown)


def check_server(uri: str, timeout: float = 5.0) -> None:
    """Raise ServerUnavailable, ServerRefused, ServerTooOld, ServerUnfit or ServerSharded unless the server at `uri`
    answers and can serve us."""
    with open_client(uri, serverSelectionTimeoutMS=int(timeout * 1000)) as probe:
        try:
            hello = probe.admin.command("hello")
            version = probe.server_info()["versionArray"]
        except PyMongoError as error:
            raise _refused_or_away(uri, error, probe.topology_description) from None
    if tuple(version[:2]) < OLDEST_SERVER:
        found = ".".join(map(str, version[:3]))
        raise ServerTooOld(f"MongoDB at {public(uri)} is {found}; 6.0 or newer is needed: upgrade it")
    if hello.get("msg") == "isdbgrid":
        raise sharded(uri)
    if "setName" not in hello:
        raise _standalone(uri)


def _standalone(uri: str) -> ServerUnavailable:
    return ServerUnavailable(
        f"MongoDB at {public(uri)} is a standalone server; majority writes need a replica set (one "
        "node is enough): start mongod with --replSet rs0 and run rs.initiate() once"
    )


def _refused_or_away(uri: str, error: PyMongoError, known: TopologyDescription) -> ServerError:
    """What it means that a server did not answer, by what is known of its members."""
    if isinstance(error, OperationFailure) and not is_transient(error):
        said = told((error.details or {}).get("errmsg", error), uri).rstrip(".")
        return ServerRefused(
            f"MongoDB at {public(uri)} refuses: {said}. Check the user, password and authSource in RECOVERY_MONGO_URI"
        )
    if answering := [f"{host}:{port}" for (host, port), one in known.server_descriptions().items() if one.is_readable]:
        return PrimaryUnavailable(
            f"MongoDB at {public(uri)} has no primary that answers here; members that do: "
            f"{', '.join(sorted(answering))}. "
            "An election takes up to 12 s; if it stays, `recovery doctor` tells which members reach each other"
        )
    if not known.server_descriptions():  # pymongo forgets servers that are not of the set that the address names
        return _of_another_set(uri, error)
    if any(one.server_type_name == "RSGhost" for one in known.server_descriptions().values()):
        return ServerUnavailable(
            f"MongoDB at {public(uri)} is of no replica set yet, or was removed from it: run rs.initiate() once, or "
            "rs.add() on the set's primary"
        )
    tls = certificates.of_mongodb(uri)
    if (fault := _fault(known, tls)) is not None:
        return CertificateRefused(f"MongoDB at {public(uri)}{fault}")
    network = "network, TLS" if tls is None else "network, and whether it speaks TLS at this port"
    return ServerUnavailable(
        f"MongoDB at {public(uri)} does not answer: {_reason(uri, error)}. Check that it runs, and that this "
        f"machine reaches it: RECOVERY_MONGO_URI, {network}. For development `recovery up` starts one"
    )


def _of_another_set(uri: str, error: PyMongoError) -> ServerError:
    """What the servers of an address are whose `replicaSet` names another set than theirs."""
    parts = read(uri)
    wanted = next((value for name, value in parts.options if name.lower() == "replicaset"), "") if parts else ""
    for place in parts.hosts.split(",") if parts is not None and parts.scheme == "mongodb" else ():
        try:
            # Outside of the caller's time limit, which the first question has used up.
            name = Context().run(_set_name, direct(uri, place))
        except PyMongoError:
            continue  # another one may answer
        if name is None:
            return _standalone(uri)
        return ServerUnfit(
            f"MongoDB at {public(uri)} is of another replica set: {place} is of {name!r}, and the address has "
            f"replicaSet={wanted}. Correct replicaSet in RECOVERY_MONGO_URI"
        )
    return ServerUnfit(
        f"MongoDB at {public(uri)} has no server of the replica set {wanted!r}, which the address names: "
        f"{_reason(uri, error)}. Correct replicaSet, or the hosts, in RECOVERY_MONGO_URI"
    )


def _set_name(uri: str) -> str | None:
    """The replica set that a server is of. Raises PyMongoError."""
    with open_client(uri, serverSelectionTimeoutMS=ASK_TIMEOUT_MS) as probe:
        name: str | None = probe.admin.command("hello").get("setName")
        return name


def _reason(uri: str, error: PyMongoError) -> str:
    """What a driver says, without all that it knows of the servers."""
    return told(error, uri).split(", Timeout:")[0].split(" (configured timeouts:")[0][:300].rstrip(".")


def _fault(known: TopologyDescription, tls: certificates.Tls | None) -> str | None:
    """What doesn't fit of certificates, where that is so with every member: one that is away may serve us yet."""
    faults = {}
    for (host, port), member in known.server_descriptions().items():
        if member.error is None or port is None:
            return None
        place = host, port
        found = handshake.speaks_tls(place, certificates.MONGODB) if tls is None else handshake.fault(place, tls)
        if found is None:
            return None
        faults[f"{host}:{port}"] = found
    member_name, first = next(iter(faults.items()))
    return f"{f' ({member_name})' if len(faults) > 1 else ''} {first.what}. {first.advice}"


def no_mongos(uri: str, servers: Sequence[Any]) -> Sequence[Any]:
    """All of these, of pymongo's descriptions of servers, since each is good enough. Raises ServerSharded."""
    if servers and servers[0].server_type_name == "Mongos":
        raise sharded(uri)
    return servers


def sharded(uri: str) -> ServerSharded:
    """That at this address is a mongos."""
    return ServerSharded(
        f"MongoDB at {public(uri)} is a mongos: processes are kept in one replica set, since sharding is not tried. "
        "Give the address of a replica set; what one can't carry goes to several, each with workers of its own"
    )
