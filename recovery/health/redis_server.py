"""Checks of Redis: does it answer, will it keep messages, has it room for them, and is each queue a queue?"""

from __future__ import annotations

from recovery.engine import Resources
from recovery.errors import ServerError, ServerUnavailable, ServerUnfit, SettingsError
from recovery.health.model import Cause, Check, Level, join_names, ok, problem, unreached, warning
from recovery.queue.message import NUDGE
from recovery.queue.redis_condition import RedisCondition

MEMORY_LOW = 0.9

KEYS_ADVICE = (
    "find out who put it there; it is to use another name, or another database of Redis. Then rename or delete it"
)


def redis(resources: Resources) -> Check:
    """Redis answers, takes messages and says whether it keeps them."""
    try:
        resources.broker.check()
    except ServerUnavailable as error:
        return unreached("redis", Cause.REDIS_UNREACHABLE, error)
    except ServerUnfit as error:
        return unreached("redis", Cause.REDIS_UNFIT, error)
    except (ServerError, SettingsError) as error:
        return unreached("redis", Cause.REDIS_REFUSES, error)
    return judge_redis(resources.broker.condition())


def judge_redis(now: RedisCondition) -> Check:
    """Return what the server's condition means for messages that are pushed to it."""
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


def keys(resources: Resources) -> Check:
    """No key of another type has the name of a queue, and none that workers set aside for that is still there."""
    store, broker = resources.store, resources.broker
    names = {*store.waiting.by_actor(count_served=False), *store.queues.all(), NUDGE}
    others, aside = broker.not_queues(sorted(names)), broker.set_aside()
    found = []
    if others:
        found.append(f"not a queue: {join_names(f'{name} is a {kind}' for name, kind in others.items())}")
    if aside:
        found.append(f"set aside by workers: {join_names(aside)}")
    if not found:
        unsaid = "; what was set aside is not known: this user may not list keys, or they are too many"
        return ok("keys", f"no other key has the name of a queue{'' if aside is not None else unsaid}")
    # Workers set it aside with the next poll; where none polls, a message that is pushed is refused.
    level = Level.PROBLEM if others else Level.WARNING
    return Check("keys", level, Cause.KEYS_IN_THE_WAY, "; ".join(found), KEYS_ADVICE)
