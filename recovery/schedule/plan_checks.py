"""Plans of schedules: parse and check what code and operators give, with errors that say what is wrong.

`@app.process(schedule=...)`, `recovery schedule add` and `set` have the same names and values. Durations are seconds,
texts such as `10m`, or timedeltas. Moments are datetimes or ISO 8601, in the schedule's time zone by default.
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
"""The shortest interval in seconds. Scanners run once a second (RECOVERY_SCAN_INTERVAL). Use a loop in an actor for
more."""
MAX_LIMIT = 1000
"""Maximum number of slots that are caught up or queued. Each slot is a process, and queued slots share one record."""
COMPARED = 200
"""Number of a crontab's slots whose distances are compared with a jitter."""
_NEVER = datetime(2026, 1, 1, tzinfo=UTC)
"""The moment from which a crontab's slots are computed. Whether a crontab ever fires does not depend on it."""
_BAD_DAY = "Bad day-of-month"
_FORMS = (
    "a crontab has five fields (minute hour day month weekday), as in '*/15 * * * *'; an interval is one word, as in "
    "'10m'"
)

E = TypeVar("E", bound=StrEnum)


def plan_names() -> list[str]:
    """Return the names of a plan's settings."""
    return list(_READERS)


def plan_of(said: Mapping[str, Any], where: str) -> Plan:
    """Return the plan of the given settings.

    Args:
        said: {name of a setting: its value}; None means not given.
        where: What the plan is for, for error messages.

    Raises:
        InputError: A name is unknown, or a value is invalid.
    """
    values: dict[str, Any] = {}
    for name, value in said.items():
        if name not in _READERS:
            raise InputError(f"{where}: no setting is named {name!r}; {_suggestion(name, plan_names())}")
        if value is not None:
            values[name] = _READERS[name](value, f"{where}: {name}={given.shown(value)}")
    plan = Plan(**{name: value for name, value in values.items() if name not in _MOMENTS})
    zone = plan.time_zone or "UTC"
    return plan.evolve(**{name: _in_zone(values[name], zone) for name in _MOMENTS if name in values})


def assignments(texts: Iterable[str], where: str) -> dict[str, str]:
    """Return {name: text} of the `NAME=VALUE` arguments of a command line. Raise InputError for an invalid one."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{where}: {given.shown(text)}: must be SETTING=VALUE, for example overlap=queue")
        if name not in _READERS:
            raise InputError(f"{where}: no setting is named {given.shown(name)}; {_suggestion(name, plan_names())}")
        if name in values:
            raise InputError(f"{where}: {name} is given twice; give it once")
        values[name] = value
    return values


def check(plan: Plan, where: str) -> None:
    """Raise InputError if the settings of a plan, with the defaults, contradict each other."""
    if plan.schedule is None:
        raise InputError(f"{where}: schedule is missing, so nothing is ever started; {_FORMS}")
    if plan.starts_at and plan.ends_at and plan.ends_at < plan.starts_at:
        raise InputError(f"{where}: ends_at={plan.ends_at:%Y-%m-%dT%H:%M:%SZ} is before starts_at")
    if plan.retry_across and plan.retry_across_count:
        raise InputError(f"{where}: give either retry_across (a time) or retry_across_count, not both")
    if plan.jitter:
        shortest = _shortest_distance(plan)
        if shortest is not None and plan.jitter >= shortest:
            jitter, distance = show_duration(plan.jitter), show_duration(shortest)
            raise InputError(f"{where}: jitter={jitter} must be shorter than the time between two slots, {distance}")


def _shortest_distance(plan: Plan) -> float | None:
    """Return the shortest time in seconds between two slots; None if there are no two."""
    return min(_distances(plan), default=None)


def longest_distance(plan: Plan) -> float | None:
    """Return the longest time in seconds between two slots of a plan with a schedule; None if there are no two."""
    return max(_distances(plan), default=None)


def _distances(plan: Plan) -> Iterator[float]:
    grid = grid_of(plan)
    assert grid is not None, "the caller has a schedule"
    slots = islice(grid.after(plan.starts_at or _NEVER), COMPARED)
    return ((later - earlier).total_seconds() for earlier, later in pairwise(slots))


def _read_schedule(value: Any, where: str) -> str:
    if isinstance(value, timedelta) or given.number(value) is not None:
        return show_duration(_checked_interval(_read_seconds(value, where), where))
    text = " ".join(given.text(value, "schedule").split())
    try:
        seconds = interval_of(text)
    except ValueError:
        raise InputError(f"{where}: is neither a crontab nor an interval; {_FORMS}") from None
    if seconds is not None:
        return show_duration(_checked_interval(seconds, where))
    crontab = ALIASES.get(text.lower(), text)
    if crontab.startswith("@"):
        raise InputError(f"{where}: {_suggestion(crontab, list(ALIASES))}")
    if not is_five_fields(crontab):
        raise InputError(f"{where}: has {len(crontab.split())} fields; {_FORMS}")
    try:
        fires = next(CronSim(crontab, _NEVER), None)
    except CronSimError as error:
        # CronSim has one error for an unreadable day and for a day that none of the months has.
        if str(error) != _BAD_DAY or not _is_day_of_some_month(crontab):
            raise InputError(f"{where}: {_error_text(error)}; {_FORMS}") from None
        fires = None
    if fires is None:
        raise InputError(f"{where}: never fires, because no such day exists")
    return text.lower() if text.startswith("@") else crontab


def _is_day_of_some_month(crontab: str) -> bool:
    minute, hour, day, _, weekday = crontab.split()
    try:
        CronSim(f"{minute} {hour} {day} * {weekday}", _NEVER)
    except CronSimError:
        return False
    return True


def _error_text(error: CronSimError) -> str:
    field = str(error).removeprefix("Bad ")
    return f"its {field} can't be read" if field != str(error) else str(error)


def _checked_interval(seconds: float, where: str) -> float:
    if seconds < SHORTEST_INTERVAL:
        raise InputError(f"{where}: the shortest interval is {show_duration(SHORTEST_INTERVAL)}")
    if seconds > LONGEST:
        raise InputError(f"{where}: the longest interval is 10 years")
    return seconds


def _read_seconds(value: Any, where: str) -> float:
    try:
        number = given.duration(value)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    if number is None or not 0 <= number <= LONGEST:
        raise InputError(f"{where}: must be a duration of 0 or more, up to 10 years")
    return round(float(number), 3)


@cache
def _zones() -> list[str]:
    return sorted(available_timezones())


def _read_zone(value: Any, where: str) -> str:
    name = given.text(value, "time_zone")
    if name not in _zones():
        raise InputError(f"{where}: no time zone has this name; {_suggestion(name, _zones())}")
    return name


def _suggestion(name: str, known: Sequence[str]) -> str:
    by_case = {known_name.lower(): known_name for known_name in known}
    # The last part is compared, too: Berlin or CET/Berlin means Europe/Berlin.
    by_end = {known_name.rpartition("/")[2].lower(): known_name for known_name in known}
    last = name.rpartition("/")[2].lower().replace(" ", "_")
    match = by_case.get(name.lower()) or by_end.get(last)
    if match is None:
        close = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=0.6)
        close_ends = difflib.get_close_matches(last, by_end, n=1, cutoff=0.75)
        match = by_case[close[0]] if close else by_end[close_ends[0]] if close_ends else None
    if match is not None:
        return f"did you mean {match!r}?"
    return f"there are: {', '.join(known)}" if len(known) <= 20 else "names are as in 'Europe/Berlin', or 'UTC'"


def _read_arguments(value: Any, where: str) -> str:
    """Return the arguments as JSON. Code gives a dict of named arguments or a list; a command line gives either as
    JSON."""
    if isinstance(value, str):
        import json

        try:
            value = json.loads(value)
        except ValueError:
            raise InputError(f"{where}: must be JSON: an object of named arguments, or an array") from None
    if isinstance(value, Mapping):
        call: list[Any] = [[], dict(value)]
    elif isinstance(value, list | tuple):
        call = [list(value), {}]
    else:
        raise InputError(f"{where}: must be an object of named arguments, or an array")
    encoded = encode(call, where)
    if encoded.promises:
        raise InputError(f"{where}: a process can't be started with a promise; use its value")
    return encoded.text


def _read_moment(value: Any, where: str) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InputError(
                f"{where}: must be a date or a time, such as 2026-12-24 or 2026-12-24T06:30+01:00"
            ) from None
    if not isinstance(value, datetime):
        raise InputError(f"{where}: must be a datetime or a text such as 2026-12-24T06:30+01:00")
    return value.replace(microsecond=0)


def _in_zone(moment: datetime, zone: str) -> datetime:
    try:
        return moment.astimezone(UTC) if moment.tzinfo else first_moment(moment, ZoneInfo(zone))
    except OverflowError:
        raise InputError(f"{moment}: is outside the calendar") from None


def _choice_reader(kind: type[E]) -> Callable[[Any, str], E]:
    def read(value: Any, where: str) -> E:
        try:
            return kind(value)
        except ValueError:
            raise InputError(f"{where}: must be one of {', '.join(kind)}") from None

    return read


def _count_reader(maximum: int, minimum: int) -> Callable[[Any, str], int]:
    def read(value: Any, where: str) -> int:
        number = (
            int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 else value
        )
        if type(number) is not int or not minimum <= number <= maximum:
            raise InputError(f"{where}: must be a whole number from {minimum} to {maximum:,}")
        return number

    return read


_MOMENTS = ("starts_at", "ends_at")
_READERS: dict[str, Callable[[Any, str], Any]] = {
    "schedule": _read_schedule,
    "time_zone": _read_zone,
    "arguments": _read_arguments,
    "overlap": _choice_reader(Overlap),
    "catch_up": _choice_reader(CatchUp),
    "catch_up_limit": _count_reader(MAX_LIMIT, 1),
    "jitter": _read_seconds,
    "starts_at": _read_moment,
    "ends_at": _read_moment,
    "retry_across": _read_seconds,
    "retry_across_count": _count_reader(MAX_COUNT, 0),
}
