"""What is refused of a schedule, and how it is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.errors import InputError
from recovery.records.schedule import DEFAULTS, CatchUp, Overlap
from recovery.schedule import check, plan_of

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"schedule": "0 0 30 2 *"}, "never fires, since no such day ever comes"),
    ({"schedule": "0 0 31 4,6 *"}, "never fires, since no such day ever comes"),
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
    ({"schedule": "1h", "starts_at": "soon"}, "must be a date or a moment"),
    ({"schedule": "10m", "jitter": "10m"}, "must be shorter than what is between two slots, 10m"),
    ({"schedule": "*/15 * * * *", "jitter": 1000}, "must be shorter than what is between two slots, 15m"),
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
