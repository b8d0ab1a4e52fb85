"""The check of MongoDB's replica set: is there a primary, does a majority reach it, and who is cut off from whom?

That a member does not answer here does not say that it is down: the primary may reach it well. And one that the primary
does not reach may answer here. So each is asked, and what is advised is what holds in each case.
"""

from __future__ import annotations

from recovery.engine import Resources
from recovery.health.model import Cause, Check, Level, join_names, ok, problem, unasked
from recovery.store.views.replica_set import TAKES_PART, Members

NAME = "replica set"


def replica_set(resources: Resources) -> Check:
    """A primary answers, and a majority of the members follows it."""
    return judge_members(resources.store.server.members())


def judge_members(members: Members) -> Check:
    """What the members' words come to."""
    if not members.answering:
        return unasked(NAME, "no member answers", "see `mongodb`")
    count = len(members.answering) + len(members.silent)
    if members.primary is None:
        return _without_primary(members, count)
    if members.seen is None:
        found = f"primary {members.primary}; {len(members.answering)} of {count} members answer"
        return Check(
            NAME, Level.WARNING, Cause.MEMBERS_NOT_SEEN, f"{found}; not authorized to ask how they see each other",
            "grant clusterMonitor to see the members",
        )  # fmt: skip
    return _with_primary(members)


def _without_primary(members: Members, count: int) -> Check:
    found = f"{len(members.answering)} of {count} members answer"
    if members.silent:
        found += f", not {join_names(members.silent)}"
    if members.named is not None:
        return problem(
            NAME,
            Cause.PRIMARY_UNREACHABLE,
            f"{members.named} is the primary, as others say, and does not answer; {found}",
            f"look at the network from here to {members.named}, and whether it runs; if it is gone, others elect "
            "another one within some 12s",
        )
    advice = "ask again: an election takes up to 12s. If it stays, no majority of the members reaches each other"
    if members.silent:
        advice += f": see whether {join_names(members.silent)} run, and the network to them"
    return problem(NAME, Cause.NO_PRIMARY, f"no primary; {found}", advice)


def _with_primary(members: Members) -> Check:
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
        return problem(NAME, Cause.NO_MAJORITY, found, f"{advice}: until then starts and results wait")
    return Check(NAME, Level.WARNING, there[0][0], found, advice) if there else ok(NAME, found)
