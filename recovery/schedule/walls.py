"""The moments at which the clocks of a time zone show a given wall time.

Clocks that are put forward leave a gap: wall times that they never show. Clocks that are put back show some wall times
twice. Both may be of any length, begin at any minute, and take a whole day with them, as in Samoa in 2011.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from math import ceil
from zoneinfo import ZoneInfo

_MINUTE = timedelta(minutes=1)
_LONGEST_CHANGE = timedelta(days=1)
"""No clock was ever put forward or back by more: this is from one side of the date line to the other."""
_FIRST = datetime.min.replace(tzinfo=UTC) + 2 * _LONGEST_CHANGE
_LAST = datetime.max.replace(tzinfo=UTC) - 2 * _LONGEST_CHANGE
"""Between these two, every moment has a wall time in every zone."""


def moments_of(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """Return the moments in UTC, in order, at which the clocks of a zone show a wall time: none, one or two."""
    before, after = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if before > after:  # by PEP 495, this is how a wall time in a gap reads
        return ()
    return (before,) if before == after else (before, after)


def first_moment(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the first moment in UTC at which a wall time is shown. If it falls into a gap, return the first minute
    after the gap."""
    if shown := moments_of(wall, zone):
        return shown[0]
    minute = wall.replace(second=0, microsecond=0)
    before, after = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    following = range(1, ceil((before - after) / _MINUTE) + 2)
    place = bisect_left(following, True, key=lambda count: bool(moments_of(minute + count * _MINUTE, zone)))
    return moments_of(minute + following[place] * _MINUTE, zone)[0]


def wall_before(moment: datetime, zone: ZoneInfo) -> datetime:
    """Return a wall time that is early enough: no earlier wall time has a moment after this one."""
    moment = min(max(moment, _FIRST), _LAST)
    shown = [(moment + days * _LONGEST_CHANGE).astimezone(zone) for days in (-1, 0, 1)]
    offsets = [offset for wall in shown if (offset := wall.utcoffset()) is not None]
    # One second more, because the first wall time of a gap may be as early as that.
    return shown[1].replace(tzinfo=None, fold=0) - (max(offsets) - min(offsets)) - timedelta(seconds=1)
