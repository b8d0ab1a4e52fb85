"""Slots of crontabs where clocks change, in all zones of the tz database, against somebody who watches the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from recovery.schedule.grid import Crontab, first_moment, moments_of, wall_before
from tests.schedule.watched_clock import Change, changes, shown_minutes, starts, zones

CRONTABS = (
    "* * * * *",
    "*/7 * * * *",
    "30 * * * *",
    "45 */2 * * *",
    "*/10 0-3 * * *",
    "* 0 * * 0",
    "0 0 * * *",
    "0,30 0-3 * * *",
    "45 1 * * *",
    "59 23 * * *",
    "23 0-23/2 * * *",
    "0 0 1-7 * 1",
)


def slots(crontab: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    return list(takewhile(lambda slot: slot <= end, Crontab(crontab, zone).after(start)))


def check_around(change: Change, crontab: str) -> None:
    """Compare from a day before, from inside what is shown twice, and from right after."""
    earliest, end = change.at - timedelta(hours=26), change.at + timedelta(hours=26)
    wanted = starts(crontab, change.zone, earliest, end)
    for start in (earliest, change.at - abs(change.by) / 2, change.at - timedelta(minutes=1), change.at):
        found = slots(crontab, change.zone, start, end)
        assert found == [slot for slot in wanted if slot > start], f"{change}: {crontab} from {start}"


@pytest.mark.parametrize(
    "zone",
    [
        "Europe/Berlin",
        "Australia/Lord_Howe",
        "Pacific/Chatham",
        "America/Santiago",
        "America/Havana",
        "Asia/Beirut",
        "Atlantic/Azores",
    ],
)
@pytest.mark.parametrize("crontab", ["30 * * * *", "*/10 0-3 * * *", "* 0 * * 0", "0 0 * * *"])
def test_slots_are_those_that_somebody_who_watches_the_clock_would_start(zone: str, crontab: str) -> None:
    for change in changes(zone, 2026, 2026):
        check_around(change, crontab)


@pytest.mark.thorough
def test_slots_are_right_in_every_zone_of_the_tz_database() -> None:
    """Zones whose clocks change from the same wall time to the same are compared once."""
    compared = set()
    for zone in zones():
        for change in changes(zone, 2026, 2026):
            wall = change.at.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
            if (wall, change.by) not in compared:
                compared.add((wall, change.by))
                for crontab in CRONTABS:
                    check_around(change, crontab)
    assert len(compared) > 20, "the tz database was not found"


@pytest.mark.thorough
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.sampled_from(zones()), st.integers(1880, 2030), st.sampled_from(CRONTABS), st.data())
def test_slots_are_right_where_clocks_ever_changed(zone: str, year: int, crontab: str, data: st.DataObject) -> None:
    """By any time: by seconds when zones began, by a day at the date line."""
    found = list(changes(zone, year, year + 9))
    assume(found)
    check_around(data.draw(st.sampled_from(found)), crontab)


@pytest.mark.parametrize(
    ("zone", "year", "by"),
    [("Pacific/Apia", 2011, timedelta(days=1)), ("Pacific/Kwajalein", 1969, -timedelta(hours=23))],
)
@pytest.mark.parametrize("crontab", ["0 12 * * *", "30 */3 * * *"])
def test_a_whole_day_may_be_left_out_or_come_twice(zone: str, year: int, by: timedelta, crontab: str) -> None:
    (change,) = (change for change in changes(zone, year, year) if change.by == by)
    check_around(change, crontab)


def test_a_gap_that_ends_within_a_minute_is_over_with_the_next_minute() -> None:
    """In Monrovia it was 0:44:30 after 0:00 on 7 January 1972."""
    zone = ZoneInfo("Africa/Monrovia")
    wall = datetime(1972, 1, 7, 0, 20)
    assert moments_of(wall, zone) == ()
    assert first_moment(wall, zone).astimezone(zone).replace(tzinfo=None) == datetime(1972, 1, 7, 0, 45)


def test_no_wall_time_of_a_zone_is_at_another_moment_than_its_clocks_show_it() -> None:
    zone = ZoneInfo("Australia/Lord_Howe")
    for change in changes(zone.key, 2026, 2026):
        start, end = change.at - timedelta(hours=3), change.at + timedelta(hours=3)
        for moment, wall in shown_minutes(zone.key, start, end):
            assert moment in moments_of(wall, zone)
            assert wall_before(moment - timedelta(minutes=1), zone) < wall


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Apia", "America/Anchorage"])
def test_slots_at_both_ends_of_the_calendar_are_no_error(zone: str) -> None:
    for year in (1, 9999):
        start = datetime(year, 12 if year > 1 else 1, 31 if year > 1 else 1, tzinfo=UTC)
        assert slots("0 0 * * *", zone, start, start + timedelta(hours=12)) is not None
