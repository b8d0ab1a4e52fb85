"""What the end of an instance means for the next ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.records import ErrorInfo, Process, ProcessState
from recovery.records.schedule import Disabled, Failing, Plan, Schedule
from recovery.schedule.across import Account, account

HOUR = timedelta(hours=1)
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
NOW = NOON + timedelta(seconds=7)
CODE, NOT_RETRIABLE = 30101, 40000


def schedule(failing: Failing | None = None, **said: Any) -> Schedule:
    return Schedule(id="nightly", type="report", code=Plan(schedule="1h", **said), failing=failing)


def process(state: ProcessState = ProcessState.BROKEN, code: int = CODE, **changes: Any) -> Process:
    """Return a process that ended at noon."""
    error = ErrorInfo(kind="E", message="m", code=code) if state is ProcessState.BROKEN else None
    return Process(id="p2", type="report", args="", state=state, error=error, ended_at=NOON).evolve(**changes)


def failing(since: datetime = NOON - HOUR, count: int = 1) -> Failing:
    """Return the failures before, of the same code."""
    return Failing(code=CODE, since=since, count=count, process="p1")


def disabled(reason: str, code: int = CODE, marker: str = "report") -> Disabled:
    return Disabled(process="p2", code=code, reason=reason, at=NOW, marker=marker)


@pytest.mark.parametrize("state", [ProcessState.RUNNING, ProcessState.BROKEN])
def test_an_instance_that_runs_or_was_looked_at_changes_nothing(state: ProcessState) -> None:
    made = schedule() if state is ProcessState.RUNNING else schedule().evolve(accounted="p2")
    assert account(made, process(state), NOW) is None


@pytest.mark.parametrize(("state", "left"), [(ProcessState.FINISHED, None), (ProcessState.ABORTED, failing())])
def test_a_success_forgets_the_failures_and_an_abort_keeps_them(state: ProcessState, left: Failing | None) -> None:
    assert account(schedule(failing(), retry_across_count=2), process(state), NOW) == Account(left)


def test_a_first_failure_is_counted_from_the_end_of_its_instance() -> None:
    expected = Failing(code=CODE, since=NOON, count=1, process="p2")
    assert account(schedule(retry_across_count=2), process(), NOW) == Account(expected)
    without_end = account(schedule(retry_across_count=2), process(ended_at=None), NOW)
    assert without_end == Account(expected.evolve(since=NOW))


def test_the_same_code_again_adds_to_the_failures() -> None:
    found = account(schedule(failing(), retry_across_count=3), process(), NOW)
    assert found == Account(Failing(code=CODE, since=NOON - HOUR, count=2, process="p2"))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"retry_across": 3600.0}, f"failed with the code {CODE} for 1h; retry_across allows 1h"),
        ({"retry_across_count": 2}, f"failed with the code {CODE} 2 times in a row; retry_across_count allows 2"),
    ],
)
def test_a_schedule_that_reaches_its_limit_is_disabled(said: dict[str, Any], reason: str) -> None:
    counted = Failing(code=CODE, since=NOON - HOUR, count=2, process="p2")
    assert account(schedule(failing(), **said), process(), NOW) == Account(counted, disabled(reason))


@pytest.mark.parametrize("said", [{"retry_across": 3601.0}, {"retry_across_count": 3}, {}])
def test_a_schedule_below_its_limit_goes_on(said: dict[str, Any]) -> None:
    found = account(schedule(failing(), **said), process(), NOW)
    assert found is not None and found.disabled is None


def test_a_code_that_is_not_retriable_disables_at_once() -> None:
    found = account(schedule(retry_across=21_600.0), process(code=NOT_RETRIABLE), NOW)
    reason = "failed with the code 40000, which is not retriable"
    assert found is not None and found.disabled == disabled(reason, NOT_RETRIABLE)


@pytest.mark.parametrize("said", [{}, {"retry_across_count": 10}])
def test_an_instance_that_left_a_marker_disables_whatever_the_plan_says(said: dict[str, Any]) -> None:
    found = account(schedule(**said), process(), NOW, marker="report")
    assert found is not None and found.disabled == disabled(f"failed with the code {CODE}, for good")


def test_the_reason_of_the_plan_comes_before_that_of_the_marker() -> None:
    found = account(schedule(failing(), retry_across_count=2), process(), NOW, marker="report")
    assert found is not None and found.disabled is not None
    assert found.disabled.reason == f"failed with the code {CODE} 2 times in a row; retry_across_count allows 2"


def test_a_schedule_is_disabled_by_the_marker_of_its_key() -> None:
    found = account(schedule(retry_across_count=1), process(key="eu"), NOW)
    assert found is not None and found.disabled is not None and found.disabled.marker == "report/eu"
