"""How a Redis or Valkey is, by what it tells of itself: for `recovery doctor`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError


@dataclass(frozen=True, slots=True)
class RedisCondition:
    """What a server tells of itself. Memory is in bytes."""

    product: str
    version: str
    is_primary: bool
    appends: bool
    """Whether it keeps an append-only file."""
    saves: bool | None
    """Whether it saves its data by itself now and then; None: it does not tell."""
    writes_well: bool
    """Whether its last writes to disk went well: by default it takes no messages after one that did not."""
    policy: str
    """What it drops when its memory is full (`maxmemory-policy`)."""
    memory: int
    limit: int
    """`maxmemory`; 0: none."""
    ahead: timedelta
    """How far its clock is ahead of this machine's."""
    uncertain: timedelta
    """By how much `ahead` may be wrong: half of what the question took."""


def introduce(redis: Redis) -> dict[str, str]:
    """Return what a server says of itself at a connection's start, `mode` and `role` among it; nothing if it may not be
    asked. Unlike INFO, each user may ask this."""
    try:
        told: Any = redis.execute_command("HELLO")  # type: ignore[no-untyped-call]
    except ResponseError:
        return {}
    pairs = told.items() if isinstance(told, dict) else zip(told[::2], told[1::2], strict=True)
    return {_text(name): _text(value) for name, value in pairs if isinstance(value, bytes | str)}


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


def ask_condition(redis: Redis) -> RedisCondition:
    """Three round trips."""
    info: dict[str, Any] = redis.info()
    before = time.time()
    told: Any = redis.time()
    after = time.time()
    seconds, microseconds = told
    middle = datetime.fromtimestamp((before + after) / 2, UTC)
    theirs = datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=microseconds)
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
        ahead=theirs - middle,
        uncertain=timedelta(seconds=(after - before) / 2),
    )


def _saves(redis: Redis) -> bool | None:
    try:
        points: Any = redis.config_get("save")
    except ResponseError:  # hosts of Redis often forbid CONFIG
        return None
    return bool(points.get("save"))
