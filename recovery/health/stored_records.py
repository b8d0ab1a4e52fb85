"""Checks of collections and their records: are the indexes there, has each live record a deadline, can it be read, and
did processes break?"""

from __future__ import annotations

from recovery.engine import Resources
from recovery.health.model import Cause, Check, join_names, ok, problem, unread, warning
from recovery.records import ProcessState
from recovery.store import Selection, schema
from recovery.wording import printable, show_age

DAMAGED_TOLD = 5
"""Damaged records that are named, at most, of each collection."""
REJECTIONS_TOLD = 5
"""Rejected writes that are named."""
GRAPHS_LOOKED_AT, READ_AT_MOST = 1_000_000, 100_000
"""Live records of a collection that are looked at, those that are due first: each in two or three seconds."""


def rejections(resources: Resources) -> Check:
    """The latest writes that a condition rejected, with their processes. For information: it keeps results from being
    taken twice."""
    store = resources.store
    latest, now = store.rejected_writes.latest()[:REJECTIONS_TOLD], store.now()
    if not latest:
        return ok("rejections", "none so far")
    told = (
        f"{one.step} of {printable(one.record)} ({one.id}) by its {one.guard}, "
        f"{show_age(max(0.0, (now - one.at).total_seconds()))} ago"
        for one in latest
    )
    return ok("rejections", f"the latest: {'; '.join(told)}")


def collections(resources: Resources) -> Check:
    """Collections, validators and indexes are there and as they should be."""
    layout = resources.store.layout
    missing, different = layout.missing(), layout.different()
    found = [f"missing or out of date: {join_names(missing)}"] if missing else []
    found += [f"not as it should be: {join_names(different)}"] if different else []
    if different:
        # Nothing of ours drops an index: making it again may take minutes, in which scans cost what exists.
        advice = f"drop it ({'; '.join(different.values())}), then `recovery init`, which makes it again"
        return problem("collections", Cause.COLLECTIONS_DIFFERENT, "; ".join(found), advice)
    if missing:
        advice = "`recovery init` brings them back"
        return problem("collections", Cause.COLLECTIONS_MISSING, "; ".join(found), advice)
    return ok("collections", "all there, with validators and indexes")


def deadlines(resources: Resources) -> Check:
    """Every live record has a deadline, at which somebody looks at it: within ten years. Costs what is live, up to a
    million graphs."""
    if lacking := _lacking(resources, "deadline", "deadlineMissing"):
        return unread("deadlines", join_names(lacking))
    missing = resources.store.overview.without_deadline(GRAPHS_LOOKED_AT)
    for name, count in resources.store.unreachable_deadlines.count().items():
        missing[name] += count
    found = ", ".join(f"{count:,} {name}" for name, count in missing.items() if count)
    if not found:
        return ok("deadlines", f"every live record has one{_of_the_first(resources, GRAPHS_LOOKED_AT, 'graphs')}")
    # The scanners stamp decisions and processes within a nudge: what is seen here was not seen to, or is new.
    advice = "is a beat running? If they stay, run `recovery sweep --repair`; find out which program wrote them"
    return problem(
        "deadlines",
        Cause.DEADLINES_MISSING,
        f"live records without one, or with one over 10 years off: {found}",
        advice,
    )


def damaged(resources: Resources) -> Check:
    """Every live record can be read. Costs what is live, up to a hundred thousand of each kind."""
    if lacking := _lacking(resources, "deadline"):
        return unread("damage", join_names(lacking))
    found = list(resources.store.damaged.find(DAMAGED_TOLD, READ_AT_MOST))
    if not found:
        return ok("damage", f"every live record can be read{_of_the_first(resources, READ_AT_MOST, 'each kind')}")
    first = "; ".join(str(damage) for damage in found[:DAMAGED_TOLD])
    more = f"; and {len(found) - DAMAGED_TOLD} more, or over" if len(found) > DAMAGED_TOLD else ""
    # What nothing is lost with scanners drop when they look at it, and what workers tell of they tell anew.
    advice = "find out who wrote that; put it right by hand, or abort the process. `recovery check` tells what is done"
    return problem("damage", Cause.RECORDS_DAMAGED, f"can't be read: {first}{more}", advice)


def _of_the_first(resources: Resources, most: int, what: str) -> str:
    """Return what to add to a finding if not every live record was looked at."""
    names = [schema.PROCESSES] if what == "graphs" else [schema.PROCESSES, schema.GRAPHS, schema.DECISIONS]
    if not resources.store.overview.are_more_live(most, names):
        return ""
    return f", of {what} only the {most:,} that are due first; a sweep looks at all"


def broken(resources: Resources) -> Check:
    """No process is broken: each that is waits for an operator, who restarts or aborts it."""
    if lacking := _lacking(resources, "deadline", "unsuccessful"):
        return unread("processes", join_names(lacking))
    counts = resources.store.overview.processes()
    running, broken_ones = counts[ProcessState.RUNNING], counts[ProcessState.BROKEN]
    found = f"{running:,} running, {broken_ones:,} broken, {counts[ProcessState.ABORTED]:,} aborted"
    if unlisted := count_unlisted(resources):
        found += f"; {unlisted:,} of the broken ones {'is' if unlisted == 1 else 'are'} not listed as interrupted"
        advice = "run `recovery sweep --repair`, which lists them again"
        return warning("processes", Cause.BROKEN_NOT_LISTED, found, advice)
    if broken_ones:
        advice = "`recovery broken list` shows why; restart them with `recovery broken restart`, or abort them"
        return warning("processes", Cause.PROCESSES_BROKEN, found, advice)
    return ok("processes", found)


def count_unlisted(resources: Resources) -> int:
    """How many broken processes `recovery broken list` does not show, at least: one that is listed and no longer broken
    hides another. 0 where the index is missing without which all processes would be read. Costs what is broken."""
    if _lacking(resources, "unsuccessful"):
        return 0
    overview = resources.store.overview
    if not (before := overview.broken()):
        return 0
    unlisted = before - resources.store.interruptions.count_processes(Selection())
    # Counted again: what was restarted meanwhile is neither. What breaks meanwhile was not broken before.
    return max(0, unlisted - max(0, before - overview.broken())) if unlisted > 0 else 0


def _lacking(resources: Resources, *names: str) -> list[str]:
    missing = resources.store.layout.missing()
    return [one for one in missing if one.startswith("index ") and one.rpartition(".")[2] in names]
