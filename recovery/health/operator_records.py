"""Checks of what operators set up: schedules, operations, stored selections, and markers that refuse starts.

Paused schedules are an operator's wish, and `beat_and_scanners` reports overdue ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from recovery.engine import Resources
from recovery.engine.operators.saved_searches import with_signed_ages
from recovery.errors import DamagedRecord, InputError
from recovery.health.model import Cause, Check, join_names, ok, problem, warning
from recovery.operations.selection import Selected
from recovery.records import Operation
from recovery.records.operation import UNDER_WAY
from recovery.records.schedule import Schedule, SlotOutcome
from recovery.schedule import damage_of, is_next_slot_impossible
from recovery.wording import count

MAX_LOOKED_AT = 1000
"""Operations under way that are checked."""
SHOWN = 5
REASON = 200
"""Characters of a reason that are shown: `recovery schedule show` has the whole."""


def schedules(resources: Resources) -> Check:
    """No schedule is disabled, and none was refused its last slot."""
    read = resources.store.schedules.all_with_damaged()
    return judge_schedules(read.records, resources.store.now(), read.damaged)


def judge_schedules(
    all_of_them: Iterable[Schedule], now: datetime | None = None, unreadable: Sequence[DamagedRecord] = ()
) -> Check:
    """Return what the records of schedules mean. Without `now` it is not checked whether a next slot is impossible."""
    found = list(all_of_them)
    damaged = [str(damage)[:REASON] for damage in unreadable]
    for one in found:
        if (damage := damage_of(one)) is not None:
            damaged.append(str(damage)[:REASON])
        elif now is not None and one.state == "active" and is_next_slot_impossible(one, now):
            damaged.append(f"{one.id}: its next slot, {one.next_slot}, is later than its schedule can have it")
    if damaged:
        return problem(
            "schedules",
            Cause.RECORDS_DAMAGED,
            f"nobody can work with {_shown(damaged)}",
            "`recovery schedule set NAME SETTING=VALUE` corrects a setting; a next slot is corrected within the hour. "
            "What can't be read is corrected in MongoDB, or removed by `recovery schedule remove NAME`",
        )
    disabled = [f"{one.id}: {one.disabled.reason}"[:REASON] for one in found if one.disabled is not None]
    refused = [
        f"{one.id}: {one.recent[-1].reason}"[:REASON]
        for one in found
        if one.state == "active" and one.recent and one.recent[-1].outcome is SlotOutcome.REFUSED
    ]
    if disabled:
        return warning(
            "schedules",
            Cause.SCHEDULES_DISABLED,
            f"disabled by their failures: {_shown(disabled)}",
            "put right what they fail for, then `recovery schedule enable NAME --reason ...`",
        )
    if refused:
        return warning(
            "schedules",
            Cause.SCHEDULES_REFUSED,
            f"refused their last slot: {_shown(refused)}",
            "`recovery schedule show NAME` tells since when",
        )
    states = [one.state for one in found]
    paused = f", {states.count('paused')} paused" if "paused" in states else ""
    return ok("schedules", f"{count(len(found), 'schedule')}{paused}; none is disabled" if found else "there is none")


def _shown(found: list[str]) -> str:
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more


def operations(resources: Resources) -> Check:
    """Every operation that is under way can be worked at. Costs what is under way."""
    read = resources.store.operations.newest_with_damaged(MAX_LOOKED_AT, UNDER_WAY)
    found = read.records
    damaged = [f"operation {one.record}: {one}"[:REASON] for one in read.damaged]
    damaged += [f"operation {one.id}: {wrong}"[:REASON] for one in found if (wrong := _wrong(resources, one))]
    if not damaged:
        return ok("operations", f"{count(len(found), 'operation')} under way" if found else "none is under way")
    return problem(
        "operations",
        Cause.RECORDS_DAMAGED,
        f"nobody can work with {_shown(damaged)}",
        "find out who wrote that; `recovery operation cancel NUMBER --reason ...`, and order it again",
    )


def _wrong(resources: Resources, operation: Operation) -> str | None:
    try:
        Selected(resources, operation)
    except InputError as error:
        return f"its selection can't be read: {error}"
    return None


def selections(resources: Resources) -> Check:
    """No saved search and no schedule has an age with a sign."""
    found = with_signed_ages(resources)
    if not found:
        return ok("selections", "no saved search or schedule has an age with a sign")
    named = join_names(f"{stored.name}: {stored.text}"[:100] for stored in found)
    return warning(
        "selections",
        Cause.SELECTIONS_AMBIGUOUS,
        f"ages with signs, which read in two ways: {named}. They keep the meaning that they had",
        "`recovery init` rewrites them as before(…), within(…), longer(…) or shorter(…), once no worker of an earlier "
        "version lives: it could not read that",
    )


def markers(resources: Resources) -> Check:
    """No marker is there, and no process type is disabled. Costs as many records as there are of both."""
    counts = resources.store.markers.counts()
    stored = resources.store.process_types.stored()
    disabled = [name for name, one in stored.items() if one.disabled is not None]
    if not counts and not disabled:
        return ok("markers", "none; no process type is disabled")
    of_types = [f"{name} ({number:,})" for name, number in counts.items()]
    total = sum(counts.values())
    told = [f"{count(total, 'marker')} of {join_names(of_types)}"] if counts else []
    told += [f"disabled: {join_names(disabled)}"] if disabled else []
    unasked = sorted(name for name in counts if name in stored and not stored[name].effective.keeps_markers)
    told += [f"not looked at, since markers=false: {join_names(unasked)}"] if unasked else []
    advice = ["`recovery marker list` tells why; clear each once that is seen to"] if counts else []
    advice += ["`recovery process-type show NAME` tells by whom and why"] if disabled else []
    return warning("markers", Cause.STARTS_REFUSED, f"not started: {'; '.join(told)}", "; ".join(advice))
