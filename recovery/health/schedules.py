"""The check of the schedules: is one disabled by its failures, or are its slots refused?

Those that are paused are an operator's wish, and those that are overdue are told by `scanners`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from recovery.engine import Resources
from recovery.errors import DamagedRecord
from recovery.health.model import Cause, Check, ok, problem, warning
from recovery.records.schedule import Schedule, SlotOutcome
from recovery.schedule import damage_of, is_next_slot_impossible
from recovery.wording import count

SHOWN = 5
REASON = 200
"""Characters of a reason that are told: `recovery schedule show` has the whole."""


def schedules(resources: Resources) -> Check:
    """No schedule is disabled, and none was refused its last slot."""
    read = resources.store.schedules.all_with_damaged()
    return judge_schedules(read.records, resources.store.now(), read.damaged)


def judge_schedules(
    all_of_them: Iterable[Schedule], now: datetime | None = None, unreadable: Sequence[DamagedRecord] = ()
) -> Check:
    """What the records say. Without `now` it is not looked whether a next slot is impossible."""
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
