"""What code and operators say of a schedule: read, checked, and refused with what is wrong.

One set of names and values for `@app.process(schedule=...)` and for `recovery schedule add` and `set`: durations are
numbers of seconds, texts such as `10m`, or timedeltas; moments are datetimes or ISO 8601, of the schedule's time zone
where they name none.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from itertools import islice, pairwise
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from recovery.errors import InputError
from recovery.limits import LONGEST, MAX_COUNT
from recovery.records import given
from recovery.records.schedule import CatchUp, Overlap, Plan
from recovery.records.values import encode
from recovery.schedule.grid import ALIASES, first_moment, grid_of, interval_of, is_five_fields
from recovery.wording import show_duration

SHORTEST_INTERVAL = 1.0
"""Seconds. Scanners look once a second (RECOVERY_SCAN_INTERVAL): what is wanted more often is a loop in an actor."""
MAX_LIMIT = 1000
"""Slots that may be caught up or wait: each is a process, and those that wait stand in one record."""
COMPARED = 200
"""Slots of a crontab whose distances a jitter is compared with."""
_NEVER = datetime(2026, 1, 1, tzinfo=UTC)
"""A day to look from: whether a crontab ever fires does not depend on when it is asked."""
_BAD_DAY = "Bad day-of-month"
_WHERE = (
    "a crontab has five fields (minute hour day month weekday), as in '*/15 * * * *'; an interval is one, as in '10m'"
)

E = TypeVar("E", bound=StrEnum)


def plan_names() -> list[str]:
    """What can be said of a schedule."""
    return list(_READERS)


def plan_of(said: Mapping[str, Any], where: str) -> Plan:
    """The plan of what was said, {name: value}. Raises InputError, which names `where` and what is wrong."""
    values: dict[str, Any] = {}
    for name, value in said.items():
        if name not in _READERS:
            raise InputError(f"{where}: no setting is named {name!r}; {_near(name, plan_names())}")
        if value is not None:
            values[name] = _READERS[name](value, f"{where}: {name}={given.shown(value)}")
    plan = Plan(**{name: value for name, value in values.items() if name not in _MOMENTS})
    zone = plan.time_zone or "UTC"
    return plan.evolve(**{name: _in_zone(values[name], zone) for name in _MOMENTS if name in values})


def assignments(texts: Iterable[str], where: str) -> dict[str, str]:
    """{name: text} of `NAME=VALUE`s from a command line."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{where}: {given.shown(text)}: must be SETTING=VALUE, for example overlap=queue")
        if name not in _READERS:
            raise InputError(f"{where}: no setting is named {given.shown(name)}; {_near(name, plan_names())}")
        if name in found:
            raise InputError(f"{where}: {name} is given twice: which of them holds?")
        found[name] = value
    return found


def check(plan: Plan, where: str) -> None:
    """Raise InputError unless the parts of a plan, defaults included, go together."""
    if plan.schedule is None:
        raise InputError(f"{where}: schedule is missing, so it is never started; {_WHERE}")
    if plan.starts_at and plan.ends_at and plan.ends_at < plan.starts_at:
        raise InputError(f"{where}: ends_at={plan.ends_at:%Y-%m-%dT%H:%M:%SZ} is before starts_at")
    if plan.retry_across and plan.retry_across_count:
        raise InputError(f"{where}: retry_across or retry_across_count: by time, or by count, not both")
    if plan.jitter:
        shortest = _shortest(plan)
        if shortest is not None and plan.jitter >= shortest:
            given_jitter, between = show_duration(plan.jitter), show_duration(shortest)
            raise InputError(
                f"{where}: jitter={given_jitter} must be shorter than what is between two slots, {between}"
            )


def _shortest(plan: Plan) -> float | None:
    """The shortest time between two slots."""
    return min(_distances(plan), default=None)


def longest_distance(plan: Plan) -> float | None:
    """Return the longest time in seconds between two slots of a plan that has a schedule; None if it has no two."""
    return max(_distances(plan), default=None)


def _distances(plan: Plan) -> Iterator[float]:
    grid = grid_of(plan)
    assert grid is not None, "who asks has a schedule"
    slots = islice(grid.after(plan.starts_at or _NEVER), COMPARED)
    return ((later - earlier).total_seconds() for earlier, later in pairwise(slots))


def _schedule(value: Any, what: str) -> str:
    if isinstance(value, timedelta) or given.number(value) is not None:
        return show_duration(_interval(_seconds(value, what), what))
    text = " ".join(given.text(value, "schedule").split())
    try:
        seconds = interval_of(text)
    except ValueError:
        raise InputError(f"{what}: is neither a crontab nor an interval; {_WHERE}") from None
    if seconds is not None:
        return show_duration(_interval(seconds, what))
    crontab = ALIASES.get(text.lower(), text)
    if crontab.startswith("@"):
        raise InputError(f"{what}: {_near(crontab, list(ALIASES))}")
    if not is_five_fields(crontab):
        raise InputError(f"{what}: has {len(crontab.split())} fields; {_WHERE}")
    try:
        fires = next(CronSim(crontab, _NEVER), None)
    except CronSimError as error:
        # A day that none of its months has is told as one that can't be read.
        if str(error) != _BAD_DAY or not _is_day_of_some_month(crontab):
            raise InputError(f"{what}: {_told(error)}; {_WHERE}") from None
        fires = None
    if fires is None:
        raise InputError(f"{what}: never fires, since no such day ever comes")
    return text.lower() if text.startswith("@") else crontab


def _is_day_of_some_month(crontab: str) -> bool:
    minute, hour, day, _, weekday = crontab.split()
    try:
        CronSim(f"{minute} {hour} {day} * {weekday}", _NEVER)
    except CronSimError:
        return False
    return True


def _told(error: CronSimError) -> str:
    field = str(error).removeprefix("Bad ")
    return f"its {field} can't be read" if field != str(error) else str(error)


def _interval(seconds: float, what: str) -> float:
    if seconds < SHORTEST_INTERVAL:
        raise InputError(f"{what}: the shortest interval is {show_duration(SHORTEST_INTERVAL)}")
    if seconds > LONGEST:
        raise InputError(f"{what}: the longest interval is 10 years")
    return seconds


def _seconds(value: Any, what: str) -> float:
    try:
        number = given.duration(value)
    except ValueError as error:
        raise InputError(f"{what}: {error}") from None
    if number is None or not 0 <= number <= LONGEST:
        raise InputError(f"{what}: must be a duration of 0 or more, up to 10 years")
    return round(float(number), 3)


@cache
def _zones() -> list[str]:
    return sorted(available_timezones())


def _zone(value: Any, what: str) -> str:
    name = given.text(value, "time_zone")
    if name not in _zones():
        raise InputError(f"{what}: no time zone has this name; {_near(name, _zones())}")
    return name


def _near(name: str, known: Sequence[str]) -> str:
    by_case = {one.lower(): one for one in known}
    # By its last part, too: who writes Berlin, or CET/Berlin, means Europe/Berlin.
    by_end = {one.rpartition("/")[2].lower(): one for one in known}
    last = name.rpartition("/")[2].lower().replace(" ", "_")
    found = by_case.get(name.lower()) or by_end.get(last)
    if found is None:
        close = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=0.6)
        close_ends = difflib.get_close_matches(last, by_end, n=1, cutoff=0.75)
        found = by_case[close[0]] if close else by_end[close_ends[0]] if close_ends else None
    if found is not None:
        return f"did you mean {found!r}?"
    return f"there are: {', '.join(known)}" if len(known) <= 20 else "names are as in 'Europe/Berlin', or 'UTC'"


def _arguments(value: Any, what: str) -> str:
    """Of code a dict of named ones or a list; of a command line either as JSON."""
    if isinstance(value, str):
        import json

        try:
            value = json.loads(value)
        except ValueError:
            raise InputError(f"{what}: must be JSON: an object of named arguments, or an array") from None
    if isinstance(value, Mapping):
        call: list[Any] = [[], dict(value)]
    elif isinstance(value, list | tuple):
        call = [list(value), {}]
    else:
        raise InputError(f"{what}: must be an object of named arguments, or an array")
    encoded = encode(call, what)
    if encoded.promises:
        raise InputError(f"{what}: a process can't be started with a promise; use its value")
    return encoded.text


def _moment(value: Any, what: str) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InputError(f"{what}: must be a date or a moment as in 2026-12-24 or 2026-12-24T06:30+01:00") from None
    if not isinstance(value, datetime):
        raise InputError(f"{what}: must be a datetime or a text such as 2026-12-24T06:30+01:00")
    return value.replace(microsecond=0)


def _in_zone(moment: datetime, zone: str) -> datetime:
    try:
        return moment.astimezone(UTC) if moment.tzinfo else first_moment(moment, ZoneInfo(zone))
    except OverflowError:
        raise InputError(f"{moment}: is not within the calendar") from None


def _choice(kind: type[E]) -> Callable[[Any, str], E]:
    def read(value: Any, what: str) -> E:
        try:
            return kind(value)
        except ValueError:
            raise InputError(f"{what}: must be one of {', '.join(kind)}") from None

    return read


def _count(most: int, least: int) -> Callable[[Any, str], int]:
    def read(value: Any, what: str) -> int:
        number = (
            int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 else value
        )
        if type(number) is not int or not least <= number <= most:
            raise InputError(f"{what}: must be a whole number from {least} to {most:,}")
        return number

    return read


_MOMENTS = ("starts_at", "ends_at")
_READERS: dict[str, Callable[[Any, str], Any]] = {
    "schedule": _schedule,
    "time_zone": _zone,
    "arguments": _arguments,
    "overlap": _choice(Overlap),
    "catch_up": _choice(CatchUp),
    "catch_up_limit": _count(MAX_LIMIT, 1),
    "jitter": _seconds,
    "starts_at": _moment,
    "ends_at": _moment,
    "retry_across": _seconds,
    "retry_across_count": _count(MAX_COUNT, 0),
}
