"""Read the condition of a Redis or Valkey server from what it reports, for `recovery doctor`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError


@dataclass(frozen=True, slots=True)
class RedisCondition:
    """What a server reports about itself. Memory is in bytes."""

    product: str
    version: str
    is_primary: bool
    appends: bool
    """Whether it keeps an append-only file."""
    saves: bool | None
    """Whether it saves snapshots by itself; None if it does not report that."""
    writes_well: bool
    """Whether its last writes to disk succeeded. By default it accepts no messages after a failed write."""
    policy: str
    """Which keys it evicts when its memory is full (`maxmemory-policy`)."""
    memory: int
    limit: int
    """`maxmemory`; 0 means no limit."""
    ahead: timedelta
    """How far its clock is ahead of this machine's clock."""
    uncertain: timedelta
    """Maximum error of `ahead`: half the duration of the round trip that asked for the time."""


def introduce(redis: Redis) -> dict[str, str]:
    """Return the server's reply to HELLO, with `mode` and `role` among its fields; empty if the server refuses it or
    does not know it.

    Unlike INFO, every user may send HELLO.
    """
    try:
        reply: Any = redis.execute_command("HELLO")  # type: ignore[no-untyped-call]
    except ResponseError:
        return {}
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {_text(name): _text(value) for name, value in pairs if isinstance(value, bytes | str)}


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


def ask_condition(redis: Redis) -> RedisCondition:
    """Return the server's condition. Takes three round trips."""
    info: dict[str, Any] = redis.info()
    before = time.time()
    reply: Any = redis.time()
    after = time.time()
    seconds, microseconds = reply
    middle = datetime.fromtimestamp((before + after) / 2, UTC)
    server_time = datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=microseconds)
    return RedisCondition(
        product="Valkey" if "valkey_version" in info else "Redis",
        version=str(info.get("valkey_version") or info["redis_version"]),
        is_primary=info.get("role", "master") == "master",
        appends=bool(info.get("aof_enabled")),
        saves=_saves(redis),
        writes_well="err" not in (info.get("rdb_last_bgsave_status"), info.get("aof_last_write_status")),
        policy=str(info.get("maxmemory_policy", "noeviction")),
        memory=int(info.get("used_memory", 0)),
        limit=int(info.get("maxmemory", 0)),
        ahead=server_time - middle,
        uncertain=timedelta(seconds=(after - before) / 2),
    )


def _saves(redis: Redis) -> bool | None:
    try:
        points: Any = redis.config_get("save")
    except ResponseError:  # providers of hosted Redis often forbid CONFIG
        return None
    return bool(points.get("save"))
