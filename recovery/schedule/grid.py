"""The slots of a schedule: of a crontab in its time zone, or of an interval.

A crontab names wall times. If clocks are put forward over a wall time, its slot is the first minute after the gap.
Several wall times in a gap share this slot. If clocks are put back and show a wall time twice, its slot is the first of
the two moments. A crontab whose minute or hour begins with `*` has a slot at both moments, because such a crontab means
elapsed time. An interval is a number of seconds, independent of clocks.

Slots are moments in UTC, so they are in order whatever clocks do. A gap, or a repetition of wall times, may have any
length, begin at any minute, and take a whole day, as in Samoa in 2011.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from math import ceil
from zoneinfo import ZoneInfo

from cronsim import CronSim

from recovery.records.schedule import Plan
from recovery.wording import parse_duration

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MAX_COUNTED = 1000
"""Maximum number of slots that are counted beyond those requested. The exact number of years of minutes is not needed.
"""
FIRST_WINDOW = timedelta(hours=1)
"""Initial length of the window, before its end, in which the latest slots are searched. The window doubles until it
contains enough slots."""
_FIELDS = 5
"""Number of a crontab's fields."""


class Grid(ABC):
    """The slots of one schedule, regardless of its end."""

    @abstractmethod
    def first(self, now: datetime, starts_at: datetime | None) -> datetime | None:
        """Return the first slot of a schedule that begins now; None if there is none."""

    @abstractmethod
    def after(self, slot: datetime) -> Iterator[datetime]:
        """Yield the slots after this one, in order."""

    @abstractmethod
    def latest(self, slot: datetime, until: datetime, most: int) -> tuple[list[datetime], int]:
        """Return the latest slots from `slot`, which must be a slot, to `until`.

        Returns:
            The last `most` of the slots, in order; and the number of all of them, counted up to MAX_COUNTED + `most`.
        """


@dataclass(frozen=True, slots=True)
class Interval(Grid):
    """A slot every `seconds` seconds."""

    seconds: float

    def first(self, now: datetime, starts_at: datetime | None) -> datetime | None:
        if starts_at is None:
            return now.replace(microsecond=0) + timedelta(seconds=self.seconds)
        if starts_at > now:
            return starts_at
        return self._slot(starts_at, self._passed(starts_at, now) + 1)

    def after(self, slot: datetime) -> Iterator[datetime]:
        count = 0
        while True:
            count += 1
            try:
                yield self._slot(slot, count)
            except OverflowError:
                return

    def latest(self, slot: datetime, until: datetime, most: int) -> tuple[list[datetime], int]:
        if slot > until:
            return [], 0
        last = self._passed(slot, until)
        return [self._slot(slot, number) for number in range(max(0, last - most + 1), last + 1)], last + 1

    def _passed(self, slot: datetime, now: datetime) -> int:
        return int((now - slot) / timedelta(seconds=self.seconds))

    def _slot(self, first: datetime, number: int) -> datetime:
        return first + number * timedelta(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Crontab(Grid):
    """The wall times that a crontab names, in the time zone `zone`."""

    text: str
    zone: str

    def first(self, now: datetime, starts_at: datetime | None) -> datetime | None:
        start = now if starts_at is None or starts_at <= now else starts_at - timedelta(microseconds=1)
        return next(self.after(start), None)

    def after(self, slot: datetime) -> Iterator[datetime]:
        last = slot
        try:
            for moment in self._moments(wall_before(slot, ZoneInfo(self.zone))):
                if moment > last:
                    last = moment
                    yield moment
        except OverflowError:  # the calendar ends
            return

    def _moments(self, wall: datetime) -> Iterator[datetime]:
        """Yield the moments of all wall times after this one, in order. Wall times in a gap yield the same moment."""
        zone, minute_and_hour = ZoneInfo(self.zone), self.text.split()[:2]
        is_repeated = any(field.startswith("*") for field in minute_and_hour)
        again: deque[datetime] = deque()
        # Without a time zone, CronSim yields wall times as if clocks never changed.
        for wall_time in CronSim(self.text, wall):
            first = first_moment(wall_time, zone)
            while again and again[0] < first:
                yield again.popleft()
            yield first
            if is_repeated:
                again.extend(moments_of(wall_time, zone)[1:])
        yield from again

    def latest(self, slot: datetime, until: datetime, most: int) -> tuple[list[datetime], int]:
        if slot > until:
            return [], 0
        passed = takewhile(lambda moment: moment <= until, self.after(slot))
        counted = MAX_COUNTED + most
        slots = [slot, *islice(passed, counted - 1)]
        if len(slots) < counted:
            return slots[-most:], len(slots)
        # There are too many slots to list. The last ones are searched from the end, in a window that doubles each time.
        window = FIRST_WINDOW
        while until - slot > window:
            recent = list(takewhile(lambda moment: moment <= until, self.after(until - window)))
            if len(recent) >= most:
                return recent[-most:], counted
            window *= 2
        return list(deque(takewhile(lambda moment: moment <= until, self.after(slot)), maxlen=most)), counted


def interval_of(text: str) -> float | None:
    """Return the seconds of an interval; None if the text has the form of a crontab. Raise ValueError for any other
    text."""
    if len(text.split()) > 1 or text.startswith("@"):
        return None
    return parse_duration(text)


def grid_of(plan: Plan) -> Grid | None:
    """Return the slots of a checked plan; None if the plan has no schedule."""
    if plan.schedule is None:
        return None
    seconds = interval_of(plan.schedule)
    if seconds is not None:
        return Interval(seconds)
    return Crontab(ALIASES.get(plan.schedule, plan.schedule), plan.time_zone or "UTC")


def is_five_fields(text: str) -> bool:
    """Return whether a text has a crontab's five fields.

    Some crontabs have a sixth field, for seconds. It is not allowed, because clock changes would be handled
    differently.
    """
    return len(text.split()) == _FIELDS


def first_slot(plan: Plan, now: datetime) -> datetime | None:
    """Return the first slot of a schedule that begins now; None if there is none."""
    grid = grid_of(plan)
    return None if grid is None else _until_end(plan, grid.first(now, plan.starts_at))


def next_slot(plan: Plan, slot: datetime) -> datetime | None:
    """Return the slot after this one; None if it was the last."""
    grid = grid_of(plan)
    return None if grid is None else _until_end(plan, next(grid.after(slot), None))


def slots_from(plan: Plan, slot: datetime | None) -> Iterator[datetime]:
    """Yield this slot and the following ones until the end of the plan."""
    while slot is not None:
        yield slot
        slot = next_slot(plan, slot)


def _until_end(plan: Plan, slot: datetime | None) -> datetime | None:
    return None if slot is None or (plan.ends_at is not None and slot > plan.ends_at) else slot


_MINUTE = timedelta(minutes=1)
_LONGEST_CHANGE = timedelta(days=1)
"""The longest time by which clocks were ever changed: from one side of the date line to the other."""
_FIRST = datetime.min.replace(tzinfo=UTC) + 2 * _LONGEST_CHANGE
"""Between _FIRST and _LAST, every moment has a wall time in every zone."""
_LAST = datetime.max.replace(tzinfo=UTC) - 2 * _LONGEST_CHANGE
"""Between these two, every moment has a wall time in every zone."""


def moments_of(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """Return the moments in UTC, in order, at which the clocks of a zone show a wall time: none, one or two."""
    before, after = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if before > after:  # by PEP 495, this shows that the wall time is in a gap
        return ()
    return (before,) if before == after else (before, after)


def first_moment(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the first moment in UTC at which clocks show a wall time; for a time in a gap, the first minute after the
    gap."""
    if shown := moments_of(wall, zone):
        return shown[0]
    minute = wall.replace(second=0, microsecond=0)
    before, after = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    following = range(1, ceil((before - after) / _MINUTE) + 2)
    index = bisect_left(following, True, key=lambda count: bool(moments_of(minute + count * _MINUTE, zone)))
    return moments_of(minute + following[index] * _MINUTE, zone)[0]


def wall_before(moment: datetime, zone: ZoneInfo) -> datetime:
    """Return a wall time so early that no earlier wall time has a moment after the given one."""
    moment = min(max(moment, _FIRST), _LAST)
    shown = [(moment + days * _LONGEST_CHANGE).astimezone(zone) for days in (-1, 0, 1)]
    offsets = [offset for wall in shown if (offset := wall.utcoffset()) is not None]
    # One more second, because the first wall time of a gap may be exactly that early.
    return shown[1].replace(tzinfo=None, fold=0) - (max(offsets) - min(offsets)) - timedelta(seconds=1)
