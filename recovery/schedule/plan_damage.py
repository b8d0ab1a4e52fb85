"""Damage in a Schedule record that its types do not show: a plan that nobody can work with.

Another program, or a person in the database's shell, may have written a crontab that does not parse, an unknown time
zone, or arguments that are no JSON. Nothing is started by such a schedule. Its other fields are intact, so an operator
can show, pause, remove and correct it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from recovery.errors import DamagedRecord, InputError
from recovery.records.given import shown
from recovery.records.schedule import Plan, Schedule
from recovery.schedule.plan_checks import longest_distance, plan_of

_READ_AGAIN = ("schedule", "time_zone", "catch_up_limit", "jitter", "retry_across", "retry_across_count")
"""Settings that stand in the record as an operator may give them, so that the same checks apply."""


def damage_of(schedule: Schedule) -> DamagedRecord | None:
    """Return what of the plan in effect nobody can work with, and how to correct it. Return None if it is sound."""
    for name, wrong in _wrongs(schedule.plan):
        advice = f"correct it by `recovery schedule set {schedule.id} {name}=VALUE`"
        return DamagedRecord(schedule.id, f"schedule {schedule.id}: {wrong}. Nothing is started; {advice}", (name,))
    return None


def check_sound(schedule: Schedule) -> None:
    """Raise InputError if nobody can work with the plan in effect."""
    if damage := damage_of(schedule):
        raise InputError(str(damage))


def _wrongs(plan: Plan) -> Iterator[tuple[str, str]]:
    for name in _READ_AGAIN:
        value = getattr(plan, name)
        try:
            if value is not None:
                plan_of({name: value}, "")
        except InputError as error:
            yield name, str(error).removeprefix(": ")
            return
    if not is_call(plan.arguments):
        yield "arguments", f"arguments={shown(plan.arguments)}: must be the JSON of `[positional, named]`"
    # A jitter is shorter than the shortest distance when it is accepted. One above the longest would postpone for ever.
    if plan.schedule is not None and plan.jitter and plan.jitter >= (longest_distance(plan) or plan.jitter + 1):
        yield "jitter", f"jitter={shown(plan.jitter)}: is longer than the time between two slots"


def is_call(text: str | None) -> bool:
    """Return whether this is the JSON of `[positional, named]` arguments. None means that there are no arguments."""
    if text is None:
        return True
    try:
        call: Any = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(call, list) and [type(part) for part in call] == [list, dict]
