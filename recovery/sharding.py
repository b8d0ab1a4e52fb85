"""A mongos is refused, by whoever comes to it first: sharding is not tried (docs/sharding.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recovery.addresses import public
from recovery.errors import ServerSharded


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
