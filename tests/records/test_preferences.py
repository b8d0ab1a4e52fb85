"""Settings of actors and process types: which values are accepted, how a refusal reads, and which value holds."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from recovery.errors import InputError
from recovery.limits import LONGEST, MAX_COUNT, SHORTEST
from recovery.records.preferences import (
    LARGEST_FACTOR,
    ActorPreferences,
    ProcessTypePreferences,
    Stored,
    check,
    default_of,
    fits,
    least_of,
    most_of,
    setting_names,
    type_of,
    wanted_value,
    within_limits,
)
from recovery.records.task import RetryOptions

SECONDS = "at least 0.001 seconds, up to 10 years (316,224,000)"
SHARED = [
    "retry", "retry_initial", "retry_coefficient", "retry_jitter_least", "retry_jitter_most", "retry_maximum",
    "retry_total",
]  # fmt: skip
"""Settings that actors and process types have in common."""


def actor(**settings: Any) -> ActorPreferences:
    """Settings of the actor `pay`."""
    return ActorPreferences(id="pay", **settings)


def test_settings_are_listed_with_the_shared_ones_last() -> None:
    assert setting_names(ActorPreferences) == [
        "worker_timeout", "accept_first", "idempotent", "restart_after_work_timeout", "max_work_timeouts",
        "lost_initial", "lost_coefficient", "lost_maximum",
        "auto_heartbeat", "task_timeout", "force_finish_after_task_timeout", "requeue_rate", *SHARED,
    ]  # fmt: skip
    assert setting_names(ProcessTypePreferences) == [
        "idle_timeout", "process_timeout", "break_after_process_timeout", "versions", "markers", "on_failure", *SHARED,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "of_type", "default"),
    [
        ("worker_timeout", float, 60.0),
        ("max_work_timeouts", int, 10),
        ("accept_first", bool, True),
        ("restart_after_work_timeout", bool, None),
        ("retry_total", float, None),
    ],
)
def test_a_setting_has_a_type_and_a_default(name: str, of_type: type, default: Any) -> None:
    assert type_of(ActorPreferences, name) is of_type
    assert default_of(ActorPreferences, name) == default


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("worker_timeout", SHORTEST, LONGEST),
        ("retry_maximum", SHORTEST, LONGEST),
        ("requeue_rate", 1 / LONGEST, MAX_COUNT),
        ("retry_coefficient", 1.0, LARGEST_FACTOR),
    ],
)
def test_times_rates_and_factors_have_limits_of_their_own(name: str, least: float, most: int) -> None:
    assert (least_of(name), most_of(ActorPreferences, name)) == (least, most)
    for value, is_within in ((least, True), (most, True), (least * 0.9, False), (most * 1.1, False)):
        assert fits(ActorPreferences, name, value) is is_within


def test_a_count_has_the_largest_count_as_its_limit() -> None:
    assert most_of(ActorPreferences, "max_work_timeouts") == MAX_COUNT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accept_first", True),
        ("accept_first", False),
        ("retry", None),
        ("restart_after_work_timeout", None),
        ("retry_initial", None),
        ("max_work_timeouts", 1),
        ("max_work_timeouts", MAX_COUNT),
        ("worker_timeout", 5),
        ("worker_timeout", 5.5),
        ("task_timeout", 0),
        ("requeue_rate", 0.0),
        ("retry_initial", 0),
        ("retry_jitter_least", 0),
        ("retry_jitter_most", 0),
        ("retry_maximum", 0),
        ("retry_total", 0),
    ],
)
def test_a_value_fits_its_setting(name: str, value: Any) -> None:
    assert fits(ActorPreferences, name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accept_first", 1),
        ("accept_first", None),
        ("accept_first", "True"),
        ("max_work_timeouts", 0),
        ("max_work_timeouts", MAX_COUNT + 1),
        ("max_work_timeouts", 2.0),
        ("max_work_timeouts", True),
        ("max_work_timeouts", None),
        ("worker_timeout", 0),
        ("worker_timeout", -1),
        ("worker_timeout", None),
        ("worker_timeout", True),
        ("worker_timeout", "60"),
        ("worker_timeout", timedelta(seconds=60)),
        ("worker_timeout", math.nan),
        ("worker_timeout", math.inf),
        ("retry_coefficient", 0),
        ("retry_total", -1),
    ],
)
def test_a_value_does_not_fit_its_setting(name: str, value: Any) -> None:
    assert not fits(ActorPreferences, name, value)


@pytest.mark.parametrize(
    ("kind", "name", "wanted"),
    [
        (ActorPreferences, "accept_first", "True or False"),
        (ActorPreferences, "retry", "True or False"),
        (ActorPreferences, "max_work_timeouts", "from 1 to 1,000,000,000"),
        (ActorPreferences, "requeue_rate", "0 (off) or more tasks a second, up to 1,000,000,000"),
        (ActorPreferences, "retry_coefficient", "a number from 1 to 1,000"),
        (ActorPreferences, "worker_timeout", SECONDS),
        (ActorPreferences, "task_timeout", f"0 (off) or {SECONDS}"),
        (ProcessTypePreferences, "idle_timeout", SECONDS),
        (ProcessTypePreferences, "process_timeout", f"0 (off) or {SECONDS}"),
        (ProcessTypePreferences, "retry_initial", f"0 or {SECONDS}"),
    ],
)
def test_what_a_setting_may_be_is_said_in_words(kind: type[ActorPreferences], name: str, wanted: str) -> None:
    assert wanted_value(kind, name) == wanted


@pytest.mark.parametrize(
    ("preferences", "message"),
    [
        (actor(worker_timeout="5m"), f"actor pay: worker_timeout must be {SECONDS}, not '5m'"),
        (actor(retry=1), "actor pay: retry must be True or False, not 1"),
        (
            ProcessTypePreferences(id="order", markers=None),  # type: ignore[arg-type]
            "process type order: markers must be True or False, not None",
        ),
    ],
)
def test_an_impossible_value_is_refused_by_name(preferences: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        check(preferences)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (2**400 - 1, f"{2**400 - 1}"[:60] + "…"),
        (2**400, "a number of over 120 digits"),
        (10**4000, "a number of over 3,986 digits"),
    ],
    ids=["just written", "just not written", "thousands"],
)
def test_a_number_that_is_too_long_to_read_is_described(value: int, told: str) -> None:
    with pytest.raises(InputError) as refused:
        check(actor(max_work_timeouts=value))
    assert str(refused.value) == f"actor pay: max_work_timeouts must be from 1 to 1,000,000,000, not {told}"


def test_defaults_are_accepted() -> None:
    check(actor())
    check(ProcessTypePreferences(id="order"))


@pytest.mark.parametrize(
    ("name", "stored", "kept"),
    [
        ("worker_timeout", 2 * LONGEST, float(LONGEST)),
        ("worker_timeout", SHORTEST / 2, SHORTEST),
        ("max_work_timeouts", MAX_COUNT + 1, MAX_COUNT),
        ("requeue_rate", 2.0 * MAX_COUNT, float(MAX_COUNT)),
        ("requeue_rate", 1e-12, 1 / LONGEST),
        ("retry_coefficient", 1e6, float(LARGEST_FACTOR)),
        ("retry_coefficient", 0.5, 1.0),
        ("retry_total", math.inf, float(LONGEST)),
    ],
)
def test_a_stored_value_beyond_a_limit_is_moved_to_the_limit(name: str, stored: float, kept: float) -> None:
    limited = within_limits(actor(**{name: stored}))
    assert limited == actor(**{name: kept})
    assert type(getattr(limited, name)) is type(kept)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"worker_timeout": SHORTEST, "task_timeout": 0.0, "retry_initial": 0},
        {"worker_timeout": float(LONGEST), "max_work_timeouts": MAX_COUNT, "retry_coefficient": 1000},
        {"retry_coefficient": 1.0, "requeue_rate": 1 / LONGEST, "accept_first": False, "retry": True},
    ],
    ids=["defaults", "least", "most", "others"],
)
def test_settings_within_their_limits_are_not_copied(settings: dict[str, Any]) -> None:
    preferences = actor(**settings)
    assert within_limits(preferences) is preferences


def test_what_an_operator_set_wins_over_the_code() -> None:
    stored = Stored(actor(worker_timeout=5.0, accept_first=False), {"worker_timeout": 9.0})
    assert stored.effective == actor(worker_timeout=9.0, accept_first=False)
    assert stored.over(actor(max_work_timeouts=3)) == actor(worker_timeout=9.0, max_work_timeouts=3)


def test_without_an_operator_the_code_holds() -> None:
    code = actor(worker_timeout=5.0)
    assert Stored(actor()).over(code) is code


def test_the_retry_settings_of_an_actor_become_a_tasks_options() -> None:
    settings: dict[str, Any] = {
        "retry": True, "retry_initial": 1.0, "retry_coefficient": 2.0, "retry_jitter_least": 3.0,
        "retry_jitter_most": 4.0, "retry_maximum": 5.0, "retry_total": 6.0,
    }  # fmt: skip
    assert actor(**settings).retry_options() == RetryOptions(
        enabled=True, initial=1.0, coefficient=2.0, jitter_least=3.0, jitter_most=4.0, maximum=5.0, total=6.0
    )
