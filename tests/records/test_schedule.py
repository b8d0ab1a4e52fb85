"""Which of what the code and an operator say of a schedule holds."""

from __future__ import annotations

from recovery.records import Schedule
from recovery.records.schedule import DEFAULTS, Plan

CODE = Plan(schedule="10m", jitter=5.0, catch_up_limit=3)


def test_what_is_said_wins_over_the_rest() -> None:
    assert Plan(schedule="1h", jitter=0.0).over(CODE) == Plan(schedule="1h", jitter=0.0, catch_up_limit=3)


def test_a_plan_that_says_nothing_changes_nothing() -> None:
    assert Plan().over(CODE) is CODE


def test_settings_can_be_left_unsaid_again() -> None:
    assert CODE.without(("jitter", "catch_up_limit")) == Plan(schedule="10m")
    assert CODE.without(()) == CODE


def test_an_operators_settings_hold_over_the_codes_and_those_over_the_defaults() -> None:
    schedule = Schedule(id="nightly", type="order", code=CODE, overrides=Plan(jitter=1.0))
    assert schedule.plan == DEFAULTS.evolve(schedule="10m", jitter=1.0, catch_up_limit=3)
    assert schedule.evolve(code=None, overrides=None).plan == DEFAULTS
