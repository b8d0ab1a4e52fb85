"""Damage in a Schedule record that its types do not show: an unusable plan.

Another program, or a person in the database's shell, may have written an invalid crontab, an unknown time zone, or
arguments that are not JSON. Such a schedule starts nothing. Its other fields are intact, so an operator can show,
pause, remove and correct it.
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
"""Settings that a record stores in the form in which an operator gives them, so the same checks apply."""


def damage_of(schedule: Schedule) -> DamagedRecord | None:
    """Return what is unusable in the plan in effect, and how to correct it; None if the plan is sound."""
    for name, problem in _problems(schedule.plan):
        advice = f"correct it by `recovery schedule set {schedule.id} {name}=VALUE`"
        return DamagedRecord(schedule.id, f"schedule {schedule.id}: {problem}. Nothing is started; {advice}", (name,))
    return None


def check_sound(schedule: Schedule) -> None:
    """Raise InputError if the plan in effect is unusable."""
    if damage := damage_of(schedule):
        raise InputError(str(damage))


def _problems(plan: Plan) -> Iterator[tuple[str, str]]:
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
    # An accepted jitter is shorter than the shortest distance. A jitter above the longest distance would postpone each
    # slot for ever.
    if plan.schedule is not None and plan.jitter and plan.jitter >= (longest_distance(plan) or plan.jitter + 1):
        yield "jitter", f"jitter={shown(plan.jitter)}: is longer than the time between two slots"


def is_call(text: str | None) -> bool:
    """Return whether a text is the JSON of `[positional, named]` arguments. None means no arguments, which is valid."""
    if text is None:
        return True
    try:
        call: Any = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(call, list) and [type(part) for part in call] == [list, dict]
