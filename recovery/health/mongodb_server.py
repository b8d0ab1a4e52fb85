"""Checks of MongoDB: does it answer, does a majority of its members acknowledge writes, which members are cut off from
which, and may our user do what it needs?

A member that does not answer here may still be reached by the primary, and a member that the primary does not reach may
answer here. So each member is asked, and the advice fits each case.
"""

from __future__ import annotations

import re

from recovery.engine import Resources
from recovery.errors import (
    PrimaryUnavailable,
    ServerError,
    ServerRefused,
    ServerUnavailable,
    SettingsError,
    StoreDenied,
    StoreUnavailable,
)
from recovery.health.model import Cause, Check, Level, join_names, ok, problem, unasked, unreached, warning
from recovery.store import check_server, roles
from recovery.store.views.overview import time_limit
from recovery.store.views.server_state import TAKES_PART, ReplicaSetState

ANSWER_TIMEOUT = 2.0
"""Seconds that a server has to answer; one that is only slow answers in one."""
ACKNOWLEDGE_TIMEOUT = 3.0
"""Seconds that a majority has for a write. A start and a finish wait for one, so this is what users wait for."""
SLOW_WRITE = 1.0
"""A hundred times what a write on good disks takes."""
ZLIB_MENDED = {(6, 0): 27, (7, 0): 28, (8, 0): 17, (8, 2): 3}
"""The first release of each version in which a message compressed by zlib reads no memory that is not its own."""


def mongodb(resources: Resources) -> Check:
    """MongoDB answers, has a primary, is new enough and a replica set."""
    try:
        with time_limit(ANSWER_TIMEOUT):
            check_server(resources.settings.mongo_uri, timeout=ANSWER_TIMEOUT)
    except PrimaryUnavailable as error:
        return unreached("mongodb", Cause.PRIMARY_UNREACHABLE, error)
    except ServerUnavailable as error:
        return unreached("mongodb", Cause.MONGODB_UNREACHABLE, error)
    except ServerRefused as error:
        return unreached("mongodb", Cause.MONGODB_REFUSES, error)
    except (ServerError, SettingsError) as error:
        return unreached("mongodb", Cause.MONGODB_UNFIT, error)
    server = resources.store.server
    return judge_mongodb(server.version(), resources.settings.database, server.takes_zlib())


def judge_mongodb(version: str, database: str, takes_zlib: bool) -> Check:
    """Return what the server's version means, and that it takes messages which zlib compressed."""
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
    """Reads and writes have the concerns that each record needs, whatever the address or the cluster says. Reports what
    these say and is not followed."""
    said = resources.store.server.not_followed()
    found = "as each record needs it"
    return ok("concerns", f"{found}; not followed: {', '.join(said)}" if said else found)


def writes(resources: Resources) -> Check:
    """A majority acknowledges writes. The write matches no record."""
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


def replica_set(resources: Resources) -> Check:
    """A primary answers, and a majority of the members follows it."""
    return judge_members(resources.store.server.members())


def judge_members(members: ReplicaSetState) -> Check:
    """Return what the members' answers mean."""
    if not members.answering:
        return unasked("replica set", "no member answers", "see `mongodb`")
    count = len(members.answering) + len(members.silent)
    if members.primary is None:
        return _without_primary(members, count)
    if members.seen is None:
        found = f"primary {members.primary}; {len(members.answering)} of {count} members answer"
        found += "; not authorized to ask how they see each other"
        return warning("replica set", Cause.MEMBERS_NOT_SEEN, found, "grant clusterMonitor to see the members")
    return _with_primary(members)


def _without_primary(members: ReplicaSetState, count: int) -> Check:
    found = f"{len(members.answering)} of {count} members answer"
    if members.silent:
        found += f", not {join_names(members.silent)}"
    if members.named is not None:
        return problem(
            "replica set",
            Cause.PRIMARY_UNREACHABLE,
            f"{members.named} is the primary, as others say, and does not answer; {found}",
            f"look at the network from here to {members.named}, and whether it runs; if it is gone, others elect "
            "another one within some 12s",
        )
    advice = "ask again: an election takes up to 12s. If it stays, no majority of the members reaches each other"
    if members.silent:
        advice += f": see whether {join_names(members.silent)} run, and the network to them"
    return problem("replica set", Cause.NO_PRIMARY, f"no primary; {found}", advice)


def _with_primary(members: ReplicaSetState) -> Check:
    seen = members.seen or ()
    lost = [one for one in seen if not one.takes_part]
    # It runs, and whoever asks here reaches it.
    cut_off = [one.name for one in lost if not one.is_reached and one.name in members.answering]
    recovering = [f"{one.name} ({one.state})" for one in lost if one.is_reached and one.state not in TAKES_PART]
    down = [one.name for one in lost if not one.is_reached and one.name not in cut_off]
    unreached = [one.name for one in seen if one.takes_part and one.name in members.silent]
    kinds = [
        (
            Cause.MEMBERS_CUT_OFF, cut_off, "run and are not reached by the primary",
            "look at the network between them and the primary",
        ),
        (
            Cause.MEMBERS_DOWN, down, "can't be reached, by the primary or from here",
            "see whether they run, and the network to them",
        ),
        (Cause.MEMBERS_RECOVERING, recovering, "take no part yet", "wait, or read their logs"),
        (
            Cause.MEMBERS_UNREACHABLE, unreached, "can't be reached from here, and the primary reaches them",
            "look at the network between this machine and them: they run",
        ),
    ]  # fmt: skip
    there = [kind for kind in kinds if kind[1]]
    found = f"primary {members.primary}; {len(seen) - len(lost)} of {len(seen)} members take part"
    found = "; ".join([found, *(f"{join_names(names)} {what}" for _, names, what, _ in there)])
    advice = "; ".join(dict.fromkeys(advice for *_, advice in there))
    if members.acknowledging < members.majority:
        found += f"; {members.majority} are needed to acknowledge a write"
        return problem("replica set", Cause.NO_MAJORITY, found, f"{advice}: until then starts and results wait")
    return Check("replica set", Level.WARNING, there[0][0], found, advice) if there else ok("replica set", found)


def rights(resources: Resources) -> Check:
    """This machine's user of MongoDB may do all that one of the roles may."""
    return judge_rights(resources.store.server.rights())


def judge_rights(held: roles.HeldRights | None) -> Check:
    """Return what the user's rights mean."""
    name = "rights"
    if held is None:
        return ok(name, "nobody logs in to MongoDB: whoever reaches it may do everything")
    whole = [role for role, lacking in held.lacking.items() if not lacking]
    if whole:
        return ok(name, f"{held.user} may do all of {', '.join(whole)}")
    # The one that was meant, most likely.
    nearest = min(held.lacking, key=lambda role: sum(map(len, held.lacking[role].values())))
    lacking = [
        f"{action} of {collection or 'the database'}"
        for collection, actions in held.lacking[nearest].items()
        for action in sorted(actions)
    ]
    found = f"{held.user} may not do all of any role; of {nearest} it lacks {join_names(lacking)}"
    return problem(
        name,
        Cause.RIGHTS_MISSING,
        found,
        f"grant it {nearest}, or what that has: `recovery init --roles` brings roles up to date",
    )
