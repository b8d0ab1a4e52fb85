"""What is refused of a schedule, and how it is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.errors import InputError
from recovery.limits import LONGEST
from recovery.records.schedule import DEFAULTS, CatchUp, Overlap
from recovery.records.values import Promise
from recovery.schedule import assignments, check, plan_names, plan_of

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"schedule": "0 0 30 2 *"}, "never fires, because no such day exists"),
    ({"schedule": "0 0 31 4,6 *"}, "never fires, because no such day exists"),
    ({"schedule": "0 0 32 * *"}, "its day-of-month can't be read"),
    ({"schedule": "0 0 1 13 *"}, "its month can't be read"),
    ({"schedule": "61 * * * *"}, "its minute can't be read"),
    ({"schedule": "* * * *"}, "has 4 fields; a crontab has five fields"),
    ({"schedule": "*/5 * * * * *"}, "has 6 fields"),
    ({"schedule": "often"}, "neither a crontab nor an interval"),
    ({"schedule": "@dayly"}, "did you mean '@daily'?"),
    ({"schedule": "0.5s"}, "the shortest interval is 1s"),
    ({"schedule": timedelta(seconds=-1)}, "must be a duration"),
    ({"schedule": 0}, "the shortest interval is 1s"),
    ({"schedule": ["*"]}, "must be a text"),
    ({"schedule": "1h", "time_zone": "Europe/Berln"}, "did you mean 'Europe/Berlin'?"),
    ({"schedule": "1h", "time_zone": "berlin"}, "did you mean 'Europe/Berlin'?"),
    ({"schedule": "1h", "time_zone": "europe/berlin"}, "did you mean 'Europe/Berlin'?"),
    ({"schedule": "1h", "time_zone": "Nowhere/At all"}, "no time zone has this name; names are as in"),
    ({"schedule": "1h", "starts_at": "2026-12-01", "ends_at": "2026-11-01"}, "is before starts_at"),
    ({"schedule": "1h", "starts_at": "soon"}, "must be a date or a time"),
    ({"schedule": "10m", "jitter": "10m"}, "must be shorter than the time between two slots, 10m"),
    ({"schedule": "*/15 * * * *", "jitter": 1000}, "must be shorter than the time between two slots, 15m"),
    ({"schedule": "10m", "jitter": -1}, "must be a duration"),
    ({"schedule": "10m", "overlap": "maybe"}, "must be one of skip, queue, allow"),
    ({"schedule": "10m", "catch_up": "two"}, "must be one of none, one, all"),
    ({"schedule": "10m", "catch_up_limit": 0}, "must be a whole number from 1 to 1,000"),
    ({"schedule": "10m", "arguments": "{"}, "must be JSON"),
    ({"schedule": "10m", "arguments": 7}, "must be an object of named arguments, or an array"),
    ({"schedule": "10m", "retry_across": "6h", "retry_across_count": 3}, "not both"),
    ({"schedule": "10m", "timezone": "UTC"}, "did you mean 'time_zone'?"),
    ({"jitter": 3}, "schedule is missing"),
]


@pytest.mark.parametrize(("said", "told"), REFUSED, ids=lambda one: str(one)[:60])
def test_refused(said: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as refused:
        check(plan_of(said, "schedule nightly").over(DEFAULTS), "schedule nightly")
    assert told in str(refused.value)
    assert str(refused.value).startswith("schedule") or "must be a text" in told


def test_taken() -> None:
    said = {
        "schedule": "  */15   * * * * ",
        "time_zone": "Europe/Berlin",
        "overlap": "queue",
        "catch_up": "all",
        "catch_up_limit": "5",
        "jitter": "30s",
        "starts_at": "2026-12-24T18:00",
        "ends_at": datetime(2027, 1, 1, tzinfo=UTC),
        "arguments": {"database": "shop"},
        "retry_across": timedelta(hours=6),
    }
    plan = plan_of(said, "schedule nightly")
    check(plan.over(DEFAULTS), "schedule nightly")
    assert plan.schedule == "*/15 * * * *"
    assert (plan.overlap, plan.catch_up, plan.catch_up_limit) == (Overlap.QUEUE, CatchUp.ALL, 5)
    assert (plan.jitter, plan.retry_across) == (30.0, 21600.0)
    assert plan.starts_at == datetime(2026, 12, 24, 17, tzinfo=UTC), "without a time zone it is the schedule's"
    assert plan.arguments == '[[],{"database":"shop"}]'


@pytest.mark.parametrize("interval", ["90m", timedelta(minutes=90), 5400, "5400"])
def test_an_interval_in_any_form(interval: Any) -> None:
    assert plan_of({"schedule": interval}, "schedule nightly").schedule == "90m"


WHERE = "schedule nightly"
FORMS = (
    "a crontab has five fields (minute hour day month weekday), as in '*/15 * * * *'; an interval is one word, as in "
    "'10m'"
)


def refusal(**said: Any) -> str:
    """Return the whole message for which settings are refused."""
    with pytest.raises(InputError) as refused:
        check(plan_of(said, WHERE).over(DEFAULTS), WHERE)
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("schedule", "5 10", f"has 2 fields; {FORMS}"),
        ("schedule", "0 0 32 * *", f"its day-of-month can't be read; {FORMS}"),
        ("schedule", "0 0 */31 * 1#5", "never fires, because no such day exists"),
        ("schedule", "3661d", "the longest interval is 10 years"),
        ("jitter", "soon", "must be a duration, for example 90, 90s, 10m, 2h or 1d"),
        ("jitter", LONGEST + 1, "must be a duration of 0 or more, up to 10 years"),
        ("starts_at", 7, "must be a datetime or a text such as 2026-12-24T06:30+01:00"),
        ("time_zone", "Nowhere/At all", "no time zone has this name; names are as in 'Europe/Berlin', or 'UTC'"),
        ("overlap", "maybe", "must be one of skip, queue, allow"),
        ("catch_up_limit", 1001, "must be a whole number from 1 to 1,000"),
        ("catch_up_limit", "1.5", "must be a whole number from 1 to 1,000"),
        ("catch_up_limit", True, "must be a whole number from 1 to 1,000"),
        ("retry_across_count", -1, "must be a whole number from 0 to 1,000,000,000"),
    ],
)
def test_a_refusal_names_the_setting_and_says_what_is_right(name: str, value: Any, reason: str) -> None:
    assert refusal(**{name: value}) == f"{WHERE}: {name}={value!r}: {reason}"


@pytest.mark.parametrize(("name", "value", "kind"), [("schedule", ["*"], "a list"), ("time_zone", 7, "an int")])
def test_a_value_that_is_not_a_text_is_refused_with_its_type(name: str, value: Any, kind: str) -> None:
    assert f"{name}={value!r}: must be a text of 1 to 500 characters, not {kind}" in refusal(**{name: value})


def test_a_setting_that_resembles_no_other_is_refused_with_all_names() -> None:
    told = f"{WHERE}: no setting is named 'xyzzy'; there are: {', '.join(plan_names())}"
    assert refusal(xyzzy=1) == told
    assert plan_names()[:3] == ["schedule", "time_zone", "arguments"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("etc/utc", "Etc/UTC"),
        ("CET/UTC", "UTC"),
        ("PARIS", "Europe/Paris"),
        ("Foo/Bar/Paris", "Europe/Paris"),
        ("Parisx", "Europe/Paris"),
        ("New York", "America/New_York"),
        ("Europe/New York", "America/New_York"),
        ("America/Indiana/Indianapoli", "America/Indiana/Indianapolis"),
    ],
)
def test_a_time_zone_is_recognized_by_its_last_part_or_by_likeness(name: str, meant: str) -> None:
    told = f"{WHERE}: time_zone={name!r}: no time zone has this name; did you mean {meant!r}?"
    assert refusal(time_zone=name) == told


def test_a_promise_is_refused_as_an_argument() -> None:
    told = "a process can't be started with a promise; use its value"
    with pytest.raises(InputError, match=rf"^{WHERE}: arguments=.*: {told}$"):
        plan_of({"arguments": {"total": Promise("t1")}}, WHERE)


def test_a_moment_that_utc_does_not_have_is_refused() -> None:
    assert "0001-01-01 00:00:00+01:00: is outside the calendar" in refusal(starts_at="0001-01-01T00:00+01:00")


@pytest.mark.parametrize("interval", ["1s", "3660d", timedelta(seconds=LONGEST)])
def test_the_shortest_and_the_longest_interval_are_taken(interval: Any) -> None:
    taken = plan_of({"schedule": interval}, WHERE).schedule
    assert taken == ("1s" if interval == "1s" else "3660d")


@pytest.mark.parametrize("alias", ["@daily", "@Daily", "@HOURLY"])
def test_an_alias_is_kept_in_lower_case(alias: str) -> None:
    assert plan_of({"schedule": alias}, WHERE).schedule == alias.lower()


def test_a_crontab_keeps_its_letters() -> None:
    assert plan_of({"schedule": "0 0 * * MON"}, WHERE).schedule == "0 0 * * MON"


def test_durations_are_rounded_to_milliseconds() -> None:
    assert plan_of({"jitter": 0.12345}, WHERE).jitter == 0.123


@pytest.mark.parametrize("limit", [1, "1", 1000, "1000"])
def test_a_count_is_taken_as_a_number_or_as_its_digits(limit: Any) -> None:
    assert plan_of({"catch_up_limit": limit}, WHERE).catch_up_limit == int(limit)


def test_moments_are_kept_in_utc() -> None:
    plan = plan_of({"time_zone": "Europe/Berlin", "starts_at": "2026-12-24T06:30-05:00"}, WHERE)
    assert plan.starts_at == datetime(2026, 12, 24, 11, 30, tzinfo=UTC), "its own distance from UTC counts"
    assert plan.starts_at.tzinfo is UTC


def test_an_end_may_be_the_start() -> None:
    moment = "2026-12-24T18:00"
    check(plan_of({"schedule": "1h", "starts_at": moment, "ends_at": moment}, WHERE), WHERE)


def test_a_jitter_is_not_compared_if_there_is_only_one_slot() -> None:
    """The calendar ends after it."""
    check(plan_of({"schedule": "0 0 25 12 *", "starts_at": "9999-06-01", "jitter": "90d"}, WHERE), WHERE)


def test_assignments_are_read_from_a_command_line() -> None:
    texts = ["overlap=queue", "schedule=*/5 * * * *", 'arguments={"text":"a=b"}']
    assert assignments(texts, WHERE) == {
        "overlap": "queue",
        "schedule": "*/5 * * * *",
        "arguments": '{"text":"a=b"}',
    }


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["overlap"], "schedule nightly: 'overlap': must be SETTING=VALUE, for example overlap=queue"),
        (["overlaps=queue"], f"{WHERE}: no setting is named 'overlaps'; did you mean 'overlap'?"),
        (["jitter=1m", "jitter=2m"], "schedule nightly: jitter is given twice; give it once"),
    ],
)
def test_a_wrong_assignment_is_refused(texts: list[str], told: str) -> None:
    with pytest.raises(InputError) as refused:
        assignments(texts, WHERE)
    assert str(refused.value) == told


def test_a_beginning_that_no_clock_shows_is_the_first_minute_after_the_gap() -> None:
    plan = plan_of({"schedule": "1h", "time_zone": "Europe/Berlin", "starts_at": "2026-03-29T02:30"}, "a test")
    assert plan.starts_at == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
