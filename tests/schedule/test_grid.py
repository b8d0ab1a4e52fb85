"""Slots of crontabs and intervals, on the days on which clocks change most of all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.records.schedule import Plan
from recovery.schedule import plan_of
from recovery.schedule.grid import MAX_COUNTED, Crontab, Grid, Interval, first_slot, grid_of, next_slot, slots_from

BERLIN = ZoneInfo("Europe/Berlin")
SPRING, AUTUMN = datetime(2026, 3, 29, tzinfo=BERLIN), datetime(2026, 10, 25, tzinfo=BERLIN)
"""At 2:00 it is 3:00; at 3:00 it is 2:00."""


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def of_day(text: str, day: datetime, zone: ZoneInfo = BERLIN) -> list[str]:
    """The times on the wall, with their distance from UTC, of a crontab's slots of one day."""
    start = day.astimezone(UTC) - timedelta(microseconds=1)
    end = (day + timedelta(days=1)).astimezone(UTC)
    found = []
    for slot in Crontab(text, zone.key).after(start):
        if slot >= end:
            break
        found.append(slot.astimezone(zone).strftime("%H:%M%z"))
    return found


def test_half_past_two_that_does_not_exist_is_started_at_three_and_once() -> None:
    assert of_day("30 2 * * *", SPRING) == ["03:00+0200"]


def test_half_past_two_that_comes_twice_is_started_the_first_time_and_once() -> None:
    assert of_day("30 2 * * *", AUTUMN) == ["02:30+0200"]


@pytest.mark.parametrize(("day", "slots"), [(SPRING, 92), (AUTUMN, 100)])
def test_every_quarter_of_an_hour_goes_on_as_time_does(day: datetime, slots: int) -> None:
    found = list(islice(Crontab("*/15 * * * *", "Europe/Berlin").after(day - timedelta(seconds=1)), slots))
    assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(minutes=15)}
    assert len(of_day("*/15 * * * *", day)) == slots


@pytest.mark.parametrize(("day", "slots"), [(SPRING, 23), (AUTUMN, 25)])
def test_every_hour_is_as_many_as_the_day_has(day: datetime, slots: int) -> None:
    assert len(of_day("0 * * * *", day)) == slots


def test_a_schedule_that_begins_in_the_second_hour_begins_the_next_day() -> None:
    second = datetime(2026, 10, 25, 2, 10, fold=1, tzinfo=BERLIN)
    assert Crontab("30 2 * * *", "Europe/Berlin").first(second.astimezone(UTC), None) == at("2026-10-26T02:30+01:00")


def test_after_the_first_of_the_two_comes_the_next_day() -> None:
    after = Crontab("30 2 * * *", "Europe/Berlin").after(at("2026-10-25T02:30+02:00"))
    assert next(after) == at("2026-10-26T02:30+01:00")


def test_two_that_fall_into_the_gap_are_one() -> None:
    assert of_day("0,30 2 * * *", SPRING) == ["03:00+0200"]


@pytest.mark.parametrize("zone", ["Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Cairo", "Asia/Kathmandu"])
def test_a_day_has_one_slot_in_every_zone(zone: str) -> None:
    """Half an hour of daylight saving; gaps at midnight; a quarter of an hour off."""
    slots = list(islice(Crontab("0 0 * * *", zone).after(at("2017-01-01T00:00Z")), 3 * 365))
    days = [slot.astimezone(ZoneInfo(zone)).date() for slot in slots]
    assert [(later - earlier).days for earlier, later in pairwise(days)] == [1] * (len(days) - 1)


@pytest.mark.parametrize("day", [SPRING, AUTUMN])
def test_an_interval_knows_no_clock_on_a_wall(day: datetime) -> None:
    slots = list(islice(Interval(3600.0).after(day.astimezone(UTC)), 48))
    assert {later - earlier for earlier, later in pairwise(slots)} == {timedelta(hours=1)}


def test_an_interval_begins_one_interval_from_now_or_where_it_is_told_to() -> None:
    now = at("2026-11-23T08:00:00.500+00:00")
    grid = Interval(600.0)
    assert grid.first(now, None) == at("2026-11-23T08:10+00:00")
    assert grid.first(now, at("2026-12-01T00:00Z")) == at("2026-12-01T00:00Z")
    assert grid.first(now, at("2026-11-23T07:55Z")) == at("2026-11-23T08:05Z")


TEXTS = ["*/15 * * * *", "30 2 * * *", "0 */5 * * *", "5,10 1-3 * * *", "0 12 1 * *", "15 2 * * 0", "* * * * *"]
GRIDS = st.one_of(
    st.builds(Crontab, st.sampled_from(TEXTS), st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"])),
    st.builds(Interval, st.sampled_from([1.0, 7.5, 60.0, 3600.0, 86400.0])),
)
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)).map(
    lambda one: one.replace(microsecond=0, tzinfo=UTC)
)


@settings(max_examples=200, deadline=None)
@given(GRIDS, MOMENTS, st.integers(0, 3 * 86400), st.integers(1, 30))
def test_the_latest_are_the_end_of_all(grid: Grid, moment: datetime, seconds: int, most: int) -> None:
    slot = next(grid.after(moment))
    until = slot + timedelta(seconds=seconds)
    found, count = grid.latest(slot, until, most)
    every = [slot]
    for one in grid.after(slot):
        if one > until or len(every) > 5000:
            break
        every.append(one)
    if len(every) <= 5000:
        assert found == every[-most:]
    assert count == len(every) or min(count, len(every)) >= MAX_COUNTED


@settings(max_examples=200, deadline=None)
@given(GRIDS, MOMENTS)
def test_slots_are_in_order_and_the_same_from_wherever_they_are_asked(grid: Grid, moment: datetime) -> None:
    slots = list(islice(grid.after(moment), 40))
    assert all(earlier < later for earlier, later in pairwise(slots))
    for place in (0, 13, 27):
        assert list(islice(grid.after(slots[place]), 10)) == slots[place + 1 : place + 11]


def test_years_of_minutes_are_counted_in_a_moment() -> None:
    slot = at("2016-01-01T00:00Z")
    found, count = Crontab("* * * * *", "Europe/Berlin").latest(slot, at("2026-01-01T00:00Z"), 3)
    assert [f"{one:%H:%M}" for one in found] == ["23:58", "23:59", "00:00"]
    assert count == MAX_COUNTED + 3
    found, _ = Crontab("* * * * *", "Europe/Berlin").latest(slot, at("2026-01-01T00:00Z"), 200)
    assert len(found) == 200 and found[0] == at("2025-12-31T20:41Z")


def test_slots_end_with_the_calendar() -> None:
    assert list(Crontab("0 0 1 1 *", "Europe/Berlin").after(at("9990-06-01T00:00Z")))[-1] <= at("9999-12-31T00:00Z")


def test_a_crontab_that_was_busy_once_a_year_is_found_all_the_same() -> None:
    """All of its slots in January, and it is December."""
    slot = at("2026-01-01T00:00Z")
    found, count = Crontab("* * * 1 *", "UTC").latest(slot, at("2026-12-31T00:00Z"), 2)
    assert found == [at("2026-01-31T23:58Z"), at("2026-01-31T23:59Z")]
    assert count == MAX_COUNTED + 2


NOON = at("2026-11-23T12:00Z")


@pytest.mark.parametrize("grid", [Crontab("0 * * * *", "UTC"), Interval(3600.0)])
def test_a_slot_at_the_moment_of_the_beginning_has_passed(grid: Grid) -> None:
    assert grid.first(NOON, NOON) == NOON + timedelta(hours=1)


def test_no_slot_of_a_crontab_is_before_its_start() -> None:
    grid, now = Crontab("0 * * * *", "UTC"), at("2026-11-20T00:00Z")
    assert grid.first(now, NOON) == NOON
    assert grid.first(now, NOON + timedelta(microseconds=1)) == NOON + timedelta(hours=1)


@pytest.mark.parametrize("grid", [Crontab("0 * * * *", "UTC"), Interval(3600.0)])
def test_no_slot_is_late_before_the_first_one(grid: Grid) -> None:
    assert grid.latest(NOON, NOON - timedelta(seconds=1), 5) == ([], 0)
    assert grid.latest(NOON, NOON, 5) == ([NOON], 1)


def test_slots_are_in_utc_wherever_the_server_is() -> None:
    assert next(Crontab("0 * * * *", "Europe/Berlin").after(NOON)).tzinfo is UTC


def test_the_latest_are_found_if_they_are_nearly_all() -> None:
    """34 hours of minutes, of which the last 1,030 are wanted: no window that begins after the first slot has them."""
    until, most = NOON + timedelta(hours=34), MAX_COUNTED + 30
    found, count = Crontab("* * * * *", "UTC").latest(NOON, until, most)
    assert found == [until - timedelta(minutes=minutes) for minutes in reversed(range(most))]
    assert count == MAX_COUNTED + most


@pytest.mark.parametrize("grid", [Crontab("* * * * *", "UTC"), Interval(60.0)])
@pytest.mark.parametrize("count", [1, 10, MAX_COUNTED - 1, MAX_COUNTED, MAX_COUNTED + 1])
def test_all_are_found_if_exactly_as_many_are_wanted(grid: Grid, count: int) -> None:
    """The first of them, too."""
    slots = [NOON + timedelta(minutes=minutes) for minutes in range(count)]
    for more in (0, 1):
        assert grid.latest(NOON, slots[-1], count + more) == (slots, count)


def test_the_grid_of_a_plan_without_a_time_zone_is_in_utc() -> None:
    assert grid_of(Plan(schedule="@hourly")) == Crontab("0 * * * *", "UTC")
    assert grid_of(Plan(schedule="0 1 * * *", time_zone="Europe/Berlin")) == Crontab("0 1 * * *", "Europe/Berlin")
    assert grid_of(Plan(schedule="90m")) == Interval(5400.0)


def test_a_plan_without_a_schedule_has_no_slots() -> None:
    assert (grid_of(Plan()), first_slot(Plan(), NOON), next_slot(Plan(), NOON)) == (None, None, None)
    assert list(slots_from(Plan(), None)) == []


def test_a_slot_at_the_end_of_the_plan_is_the_last() -> None:
    plan = plan_of({"schedule": "0 * * * *", "ends_at": "2026-11-23T14:00Z"}, "a test")
    assert list(slots_from(plan, NOON)) == [NOON + timedelta(hours=hours) for hours in range(3)]
    assert first_slot(plan, NOON + timedelta(hours=1)) == NOON + timedelta(hours=2)
    assert first_slot(plan, NOON + timedelta(hours=2)) is None


def test_no_slot_is_after_the_last_day_of_the_calendar() -> None:
    plan, day = Plan(schedule="0 0 1 1 *"), at("9999-06-01T00:00Z")
    assert (first_slot(plan, day), next_slot(plan, day)) == (None, None)
