"""`recovery schedule next`: when a schedule, a crontab or an interval is due. Of what is given no server is asked."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

from recovery.cli.connection import connect
from recovery.cli.output import console, print_json
from recovery.engine.operators.schedules import Schedules
from recovery.errors import InputError
from recovery.records.schedule import DEFAULTS, Plan
from recovery.schedule import check_sound, plan_of, slots_from
from recovery.schedule.grid import first_slot


def print_slots(schedule: str, number: int, time_zone: str | None, after: str | None, json: bool) -> None:
    """Print so many slots, in the order of time."""
    is_name = schedule[:1].isalpha() or schedule[:1] == "_"
    plan, first = _named(schedule, time_zone, after) if is_name else _given(schedule, time_zone, after)
    slots = list(islice(slots_from(plan, first), number))
    zone = ZoneInfo(plan.time_zone or "UTC")
    if json:
        told = [{"slot": slot, "local": _local(slot, zone).isoformat()} for slot in slots]
        found = {"name": schedule if is_name else None, "schedule": plan.schedule, "time_zone": zone.key}
        print_json("schedule next", {**found, "slots": told})
        return
    for slot in slots:
        console().print(f"{_local(slot, zone):%a %Y-%m-%d %H:%M:%S %Z}  {slot:%Y-%m-%dT%H:%M:%SZ}")
    if not slots:
        console().print("none: it is paused, disabled, or past its end")


def _named(name: str, time_zone: str | None, after: str | None) -> tuple[Plan, datetime | None]:
    """Return the plan of a schedule, and the first slot to show; None if there is none."""
    if time_zone is not None:
        raise InputError(
            f"--time-zone goes with a crontab; {name} has its own: `recovery schedule set {name} time_zone=…`"
        )
    schedule = Schedules(connect(needs_redis=False)).get(name)
    check_sound(schedule)
    plan = schedule.plan
    if after is not None:
        # An interval keeps its places, from whenever they are asked.
        anchor = schedule.next_slot if plan.starts_at is None else plan.starts_at
        moment = plan_of({"starts_at": after, "time_zone": plan.time_zone}, "--from").starts_at
        return plan, None if moment is None else first_slot(plan.evolve(starts_at=anchor), moment)
    return plan, schedule.next_slot if schedule.state == "active" else None


def _given(text: str, time_zone: str | None, after: str | None) -> tuple[Plan, datetime | None]:
    """Return the same for a crontab or an interval. No server is asked."""
    said = {"schedule": text, "time_zone": time_zone}
    plan = plan_of(said, "recovery schedule next").over(DEFAULTS)
    if after is None:
        return plan, first_slot(plan, datetime.now(UTC))
    moment = plan_of({"starts_at": after, "time_zone": plan.time_zone}, "--from").starts_at
    return plan, None if moment is None else first_slot(plan, moment)


def _local(slot: datetime, zone: ZoneInfo) -> datetime:
    """Return a slot as the time in a zone; in UTC if the zone's calendar does not have it."""
    try:
        return slot.astimezone(zone)
    except OverflowError:
        return slot
