"""Checks of MongoDB and Redis: do they answer, and will they keep what they are told?"""

from __future__ import annotations

import re

from recovery.engine import Resources
from recovery.errors import (
    PrimaryUnavailable,
    ServerError,
    ServerRefused,
    ServerTooOld,
    ServerUnavailable,
    ServerUnfit,
    SettingsError,
    StoreDenied,
    StoreUnavailable,
)
from recovery.health.model import Cause, Check, Level, ok, problem, warning
from recovery.queue.redis_condition import RedisCondition
from recovery.store import check_server, roles
from recovery.store.views.overview import time_limit

ANSWER_TIMEOUT = 2.0
"""Seconds that a server has to answer; one that is only slow answers in one."""
ACKNOWLEDGE_TIMEOUT = 3.0
"""Seconds that a majority has for a write. A start and a finish wait for one, so this is what users wait for."""
SLOW_WRITE = 1.0
"""A hundred times what a write on good disks takes."""
MEMORY_LOW = 0.9
ZLIB_MENDED = {(6, 0): 27, (7, 0): 28, (8, 0): 17, (8, 2): 3}
"""The first release of each version in which a message compressed by zlib reads no memory that is not its own."""


def mongodb(resources: Resources) -> Check:
    """MongoDB answers, has a primary, is new enough and a replica set."""
    try:
        with time_limit(ANSWER_TIMEOUT):
            check_server(resources.settings.mongo_uri, timeout=ANSWER_TIMEOUT)
    except PrimaryUnavailable as error:
        return _away("mongodb", Cause.PRIMARY_UNREACHABLE, error)
    except ServerUnavailable as error:
        return _away("mongodb", Cause.MONGODB_UNREACHABLE, error)
    except ServerRefused as error:
        return _away("mongodb", Cause.MONGODB_REFUSES, error)
    except (ServerError, SettingsError) as error:
        return _away("mongodb", Cause.MONGODB_UNFIT, error)
    server = resources.store.server
    return judge_mongodb(server.version(), resources.settings.database, server.takes_zlib())


def judge_mongodb(version: str, database: str, takes_zlib: bool) -> Check:
    """What the server's version means, and that it takes what zlib compressed."""
    found = f"{version} answers, database {database}"
    major, minor, patch, *_ = (int(part) for part in re.findall(r"\d+", version))
    if takes_zlib and patch < ZLIB_MENDED.get((major, minor), 0):
        advice = "upgrade it, or start it with --networkMessageCompressors snappy,zstd"
        return problem(
            "mongodb",
            Cause.MONGODB_SHOWS_MEMORY,
            f"{found}, and shows its memory to who has not logged in (CVE-2025-14847)",
            advice,
        )
    return ok("mongodb", found)


def concerns(resources: Resources) -> Check:
    """What is read and written with a majority is so whatever the address or the cluster says, and what they say that
    is not followed."""
    said = resources.store.server.not_followed()
    found = "as each record needs it"
    return ok("concerns", f"{found}; not followed: {', '.join(said)}" if said else found)


def writes(resources: Resources) -> Check:
    """A majority acknowledges writes. What is written matches nothing."""
    try:
        with time_limit(ACKNOWLEDGE_TIMEOUT):
            seconds = resources.store.server.acknowledge(ACKNOWLEDGE_TIMEOUT)
    except StoreDenied:
        advice = f"ask as a user with the role {roles.WORKER} or {roles.OPERATOR}"
        return warning("writes", Cause.WRITES_NOT_TRIED, "not tried: this user of MongoDB may not write", advice)
    except StoreUnavailable as error:
        found = f"not acknowledged by a majority within {ACKNOWLEDGE_TIMEOUT:g}s ({error})"
        advice = "see `replica set`: starts and results wait until a majority of the members has what is written"
        return problem("writes", Cause.WRITES_NOT_ACKNOWLEDGED, found, advice)
    found = f"acknowledged by a majority in {seconds * 1000:.0f}ms"
    if seconds > SLOW_WRITE:
        advice = "look at the disks, the load and the replication lag of MongoDB's members"
        return warning("writes", Cause.WRITES_SLOW, found, advice)
    return ok("writes", found)


def redis(resources: Resources) -> Check:
    """Redis answers, takes messages and says whether it keeps them."""
    try:
        resources.broker.check()
    except ServerUnavailable as error:
        return _away("redis", Cause.REDIS_UNREACHABLE, error)
    except ServerUnfit as error:
        return _away("redis", Cause.REDIS_UNFIT, error)
    except (ServerError, SettingsError) as error:
        return _away("redis", Cause.REDIS_REFUSES, error)
    return judge_redis(resources.broker.condition())


def judge_redis(now: RedisCondition) -> Check:
    """What the server tells of itself means for the messages that it is given."""
    name = "redis"
    found = f"{now.product} {now.version} answers, persistence: "
    kinds = [kind for kind, on in (("append-only file", now.appends), ("saves", now.saves)) if on]
    # None is well: hints only are lost, and each is found missing within message_timeout of a restart.
    unknown = "not told" if now.saves is None else "none; after a restart messages are requeued"
    found += " and ".join(kinds) or unknown
    if not now.is_primary:
        return problem(
            name,
            Cause.REDIS_IS_REPLICA,
            f"{found}; it is a replica, which takes no messages",
            "set RECOVERY_BROKER_URL to its primary",
        )
    if not now.writes_well:
        advice = "look at its disk and its log: by default it takes no messages until a write to disk went well"
        return problem(name, Cause.REDIS_CAN_NOT_SAVE, f"{found}; its last write to disk failed", advice)
    return ok(name, found)


def memory(resources: Resources) -> Check:
    """Redis has room for messages, and does not make room by dropping them."""
    name = "redis memory"
    now = resources.broker.condition()
    limit = f"of {now.limit / 2**20:,.0f} MB" if now.limit else "used, no limit set"
    found = f"{now.memory / 2**20:,.1f} MB {limit}, maxmemory-policy {now.policy}"
    if now.policy.startswith("allkeys"):
        # Though no limit may be set today: whoever sets one does not think of this.
        return problem(
            name,
            Cause.REDIS_DROPS_MESSAGES,
            f"{found}: drops messages once memory is full",
            "set maxmemory-policy noeviction",
        )
    if now.limit and now.memory >= now.limit:
        return problem(name, Cause.REDIS_FULL, f"{found}: full, it takes no messages", "raise maxmemory")
    if now.limit and now.memory > MEMORY_LOW * now.limit:
        return warning(
            name,
            Cause.REDIS_FULL,
            f"{found}: nearly full",
            "raise maxmemory, or see `queues` for those that no worker consumes",
        )
    if now.policy != "noeviction":
        # It drops only what has an expiry, and a list of messages has none.
        return warning(
            name,
            Cause.REDIS_POLICY,
            f"{found}: may drop others' keys",
            "set maxmemory-policy noeviction, which says what is meant",
        )
    return ok(name, found)


def _away(name: str, cause: Cause, error: ServerError | SettingsError) -> Check:
    # The error says what to do. Who is not even let in is told nothing else, after a long wait each time.
    return Check(name, Level.PROBLEM, cause, str(error), asked=isinstance(error, ServerTooOld))
