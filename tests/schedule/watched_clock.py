"""A model of crontabs that shares no code with the project.

Somebody watches the clock on the wall, minute by minute, and starts what is due."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


@dataclass(frozen=True)
class Change:
    """A zone's clocks are put forward or back."""

    zone: str
    at: datetime
    by: timedelta


@cache
def zones() -> list[str]:
    """Return the names of all zones of the tz database."""
    return sorted(available_timezones())


def changes(zone: str, first_year: int, last_year: int) -> Iterator[Change]:
    """Yield the changes of a zone's clocks, to the second."""
    info, moment = ZoneInfo(zone), datetime(first_year, 1, 1, tzinfo=UTC)
    while moment.year <= last_year:
        earlier, later = moment, moment + DAY
        if offset(info, earlier) != offset(info, later):
            while later - earlier > timedelta(seconds=1):
                middle = earlier + timedelta(seconds=(later - earlier) // timedelta(seconds=2))
                earlier, later = (middle, later) if offset(info, middle) == offset(info, earlier) else (earlier, middle)
            yield Change(zone, later, offset(info, later) - offset(info, earlier))
        moment += DAY


def offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    """Return how far the clocks of a zone are ahead of UTC."""
    found = moment.astimezone(zone).utcoffset()
    assert found is not None
    return found


@cache
def shown_minutes(zone: str, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """Return each moment at which a whole minute begins on the wall, and that minute."""
    info, moment, found = ZoneInfo(zone), start, []
    while moment <= end:
        wall = moment.astimezone(info).replace(tzinfo=None, fold=0)
        if wall.second == 0:
            found.append((moment, wall))
        step = timedelta(seconds=60 - wall.second)
        # In the minute in which clocks change, every second is looked at: a change may be at any.
        moment += step if offset(info, moment) == offset(info, moment + step) else timedelta(seconds=1)
    return found


def starts(crontab: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """Return when a crontab starts something, after one moment and until another."""
    named, found = Named(crontab), []
    latest: datetime | None = None
    # Two days earlier, so that it is known which minutes are shown for the second time.
    for moment, wall in shown_minutes(zone, start.replace(second=0, microsecond=0) - 2 * DAY, end):
        is_due = named.has(wall) and (latest is None or wall > latest or named.is_wildcard)
        if latest is not None:
            skipped = latest + MINUTE
            while skipped < wall and not is_due:
                is_due = named.has(skipped)
                skipped += MINUTE
        latest = wall if latest is None else max(latest, wall)
        if is_due and start < moment:
            found.append(moment)
    return found


class Named:
    """The minutes that a crontab of numbers, ranges, steps and lists names."""

    def __init__(self, crontab: str) -> None:
        minute, hour, day, month, weekday = crontab.split()
        self.minutes, self.hours = _numbers(minute, 0, 59), _numbers(hour, 0, 23)
        self.days, self.months = _numbers(day, 1, 31), _numbers(month, 1, 12)
        self.weekdays = {number % 7 for number in _numbers(weekday, 0, 7)}
        self.needs_both_days = day.startswith("*") or weekday.startswith("*")
        self.is_wildcard = minute.startswith("*") or hour.startswith("*")

    def has(self, wall: datetime) -> bool:
        """Return whether this minute is named."""
        if wall.minute not in self.minutes or wall.hour not in self.hours or wall.month not in self.months:
            return False
        days = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        return all(days) if self.needs_both_days else any(days)


def _numbers(field: str, least: int, most: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        body, _, step = part.partition("/")
        first, _, last = body.partition("-")
        begin, end = (least, most) if body == "*" else (int(first), int(last or (most if step else first)))
        found.update(range(begin, end + 1, int(step or 1)))
    return found
