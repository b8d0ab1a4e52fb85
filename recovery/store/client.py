"""Connections to MongoDB: one client per operating-system process and address.

A client must not be used across a fork: the child process makes its own client. pymongo's own retry of writes is turned
off (`retryWrites=False`), because the server would store a record for each write. Instead this project retries: every
step may run twice, also after a lost reply. Steps that a thread waits for are retried in place (`engine.outages`); all
others are found by their overdue deadlines.
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
"""Oldest supported version of MongoDB (major, minor)."""
ASK_TIMEOUT_MS = 1000
"""Milliseconds to wait for a server that answered a moment ago."""


def client(uri: str, within: float | None = None) -> MongoClient[Document]:
    """Return this process's shared client for `uri`.

    With `within` the client is another one, which gives up connecting and waiting for an answer after this many
    seconds.
    """
    return _client(uri, os.getpid(), within)


@lru_cache(maxsize=8)
def _client(uri: str, _pid: int, within: float | None = None) -> MongoClient[Document]:
    # Only defaults that the address does not set: options of `MongoClient` would override the address.
    defaults: dict[str, Any] = {
        # A failover takes about 10 s.
        "serverSelectionTimeoutMS": 20_000,
        "retryWrites": False,
        # A frozen primary, or one whose machine is gone, closes no connection. pymongo closes its connections once the
        # primary has not answered for the sum of these two times; with pymongo's defaults this is 30 s.
        "heartbeatFrequencyMS": 5_000,
        "connectTimeoutMS": 5_000,
        # Called whenever pymongo selects a server, so a mongos is reported even if the address was not checked before.
        "server_selector": partial(no_mongos, uri),
    }
    options: dict[str, Any] = {name: value for name, value in defaults.items() if name.lower() not in uri.lower()}
    if within is not None:
        limit = int(within * 1000)
        options |= {
            "serverSelectionTimeoutMS": limit,
            "socketTimeoutMS": limit,
            # Half of the limit to connect, the other half for the first answer.
            "connectTimeoutMS": limit // 2,
            # Poll instead of streaming: this saves one connection to each member.
            "serverMonitoringMode": "poll",
            "connect": False,
        }
    # MongoDB's dates exceed the range of Python's. Such a date would make a whole page unreadable, so it is clamped to
    # Python's first or last date.
    return open_client(uri, tz_aware=True, datetime_conversion="DATETIME_CLAMP", appname="recovery-workers", **options)


def open_client(uri: str, **options: Any) -> MongoClient[Document]:
    """Return a client with these options.

    Raises:
        SettingsError: pymongo can't use the address.
    """
    if (tls := certificates.of_mongodb(uri)) is not None:
        tls.check()
    try:
        with warnings.catch_warnings():
            # By default pymongo only warns about an unknown option or an invalid value, and ignores it.
            warnings.simplefilter("error", UserWarning)
            return MongoClient(uri, **options)
    except (PyMongoError, LookupError, ValueError, TypeError, OSError, UserWarning) as error:
        raise SettingsError(f"RECOVERY_MONGO_URI={public(uri)}: {told(error, uri)}") from None


def wait_for_no_monitor() -> None:
    """Let this process exit without joining pymongo's monitor threads.

    The monitors wake up twice a second, so joining them takes half the time of a short command. They are daemon
    threads, and none of their connections carries our commands.
    """
    if (shutdown := getattr(monitor, "_shutdown_resources", None)) is not None:
        atexit.unregister(shutdown)


def check_server(uri: str, timeout: float = 5.0) -> None:
    """Check that the server at `uri` answers and is usable.

    Args:
        uri: Address of MongoDB.
        timeout: Seconds to wait for a primary.

    Raises:
        ServerUnavailable: No server answers, or it is not in a replica set.
        PrimaryUnavailable: Members answer, but none is a primary.
        ServerRefused: The server refuses the user.
        CertificateRefused: TLS fails with every member.
        ServerTooOld: The server is older than OLDEST_SERVER.
        ServerUnfit: The servers belong to another replica set.
        ServerSharded: The server is a mongos.
    """
    with open_client(uri, serverSelectionTimeoutMS=int(timeout * 1000)) as probe:
        try:
            hello = probe.admin.command("hello")
            version = probe.server_info()["versionArray"]
        except PyMongoError as error:
            raise _refused_or_away(uri, error, probe.topology_description) from None
    if tuple(version[:2]) < OLDEST_SERVER:
        version_text = ".".join(map(str, version[:3]))
        raise ServerTooOld(f"MongoDB at {public(uri)} is {version_text}; 6.0 or newer is needed: upgrade it")
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
    """Return the error that explains why a server did not answer, by what pymongo knows about the members."""
    if isinstance(error, OperationFailure) and not is_transient(error):
        reason = told((error.details or {}).get("errmsg", error), uri).rstrip(".")
        return ServerRefused(
            f"MongoDB at {public(uri)} refuses: {reason}. Check the user, password and authSource in RECOVERY_MONGO_URI"
        )
    if answering := [
        f"{host}:{port}" for (host, port), server in known.server_descriptions().items() if server.is_readable
    ]:
        return PrimaryUnavailable(
            f"MongoDB at {public(uri)} has no primary that answers here; members that answer: "
            f"{', '.join(sorted(answering))}. "
            "An election takes up to 12 s; if it takes longer, `recovery doctor` shows which members reach each other"
        )
    if not known.server_descriptions():  # pymongo drops servers that are not in the replica set of the address
        return _of_another_set(uri, error)
    if any(server.server_type_name == "RSGhost" for server in known.server_descriptions().values()):
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
    """Return the error for an address whose `replicaSet` names another replica set than its servers belong to."""
    parts = read(uri)
    wanted = next((value for name, value in parts.options if name.lower() == "replicaset"), "") if parts else ""
    for host in parts.hosts.split(",") if parts is not None and parts.scheme == "mongodb" else ():
        try:
            # In a fresh context, because the first question has used up the caller's time limit.
            name = Context().run(_set_name, direct(uri, host))
        except PyMongoError:
            continue  # another server may answer
        if name is None:
            return _standalone(uri)
        return ServerUnfit(
            f"MongoDB at {public(uri)} is of another replica set: {host} is of {name!r}, and the address has "
            f"replicaSet={wanted}. Correct replicaSet in RECOVERY_MONGO_URI"
        )
    return ServerUnfit(
        f"MongoDB at {public(uri)} has no server of the replica set {wanted!r}, which the address names: "
        f"{_reason(uri, error)}. Correct replicaSet, or the hosts, in RECOVERY_MONGO_URI"
    )


def _set_name(uri: str) -> str | None:
    """Return the name of a server's replica set, or None for a standalone server. Raises PyMongoError."""
    with open_client(uri, serverSelectionTimeoutMS=ASK_TIMEOUT_MS) as probe:
        name: str | None = probe.admin.command("hello").get("setName")
        return name


def _reason(uri: str, error: PyMongoError) -> str:
    """Return the text of a driver's error without its description of all servers."""
    return told(error, uri).split(", Timeout:")[0].split(" (configured timeouts:")[0][:300].rstrip(".")


def _fault(known: TopologyDescription, tls: certificates.Tls | None) -> str | None:
    """Return what is wrong with TLS, or None unless it is wrong with every member.

    A member without an error, or without a fault of TLS, may still become usable.
    """
    faults = {}
    for (host, port), member in known.server_descriptions().items():
        if member.error is None or port is None:
            return None
        address = host, port
        fault = handshake.speaks_tls(address, certificates.MONGODB) if tls is None else handshake.fault(address, tls)
        if fault is None:
            return None
        faults[f"{host}:{port}"] = fault
    member_name, first_fault = next(iter(faults.items()))
    return f"{f' ({member_name})' if len(faults) > 1 else ''} {first_fault.what}. {first_fault.advice}"


def no_mongos(uri: str, servers: Sequence[Any]) -> Sequence[Any]:
    """Return all of these server descriptions: a `server_selector` that accepts every server but a mongos.

    Raises:
        ServerSharded: The server is a mongos.
    """
    if servers and servers[0].server_type_name == "Mongos":
        raise sharded(uri)
    return servers


def sharded(uri: str) -> ServerSharded:
    """Return the error for an address of a mongos."""
    return ServerSharded(
        f"MongoDB at {public(uri)} is a mongos: processes are kept in one replica set; sharding is not supported. "
        "Give the address of a replica set; for more load use several replica sets, each with workers of its own"
    )
