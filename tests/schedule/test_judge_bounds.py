"""Decisions at the limits of a schedule, and the reasons that their results give."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recovery.records.schedule import Disabled, SlotOutcome, SlotResult
from recovery.schedule import Instance, decide, settle
from recovery.schedule.grid import next_slot
from recovery.schedule.judge import due_at
from tests.schedule.test_judge import HOUR, NOON, Life, process, schedule

MINUTE = timedelta(minutes=1)
RETRIABLE = 30101


def started(operation: int | None = None) -> SlotResult:
    """Return the result of the slot at 13:00, which was started as the process p2."""
    return SlotResult(slot=NOON + HOUR, outcome=SlotOutcome.STARTED, process="p2", operation=operation)


def test_a_share_of_the_jitter_is_whole_milliseconds() -> None:
    """MongoDB's dates keep no more, and the due time is computed anew by each scanner."""
    made = schedule(jitter="10m")
    parts = {due_at(made, NOON + HOUR * hour).microsecond for hour in range(100)}
    assert len(parts) > 50 and all(part % 1000 == 0 for part in parts)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Honolulu", "Asia/Tokyo"])
@pytest.mark.parametrize("when", ["1h", "0 * * * *", "0 0 1 1 *"])
def test_slots_at_both_ends_of_the_calendar(when: str, zone: str) -> None:
    """What such a slot has of the jitter, and what comes before and after it, is no date."""
    plan = {"schedule": when, "jitter": "10m"} | ({"time_zone": zone} if " " in when else {})
    made = schedule(**plan)
    now = NOON + HOUR * 1.5
    early = decide(made.evolve(next_slot=datetime.min.replace(tzinfo=UTC)), [], now).schedule
    assert early.next_slot is not None and early.next_slot > now
    late = made.evolve(next_slot=datetime.max.replace(tzinfo=UTC))
    assert decide(late, [], now).schedule.starting is None
    assert late.next_slot is not None and next_slot(late.plan, late.next_slot) is None


def test_a_slot_is_skipped_while_the_operation_before_is_under_way() -> None:
    (skipped,) = decide(schedule(), [], NOON + HOUR, operation=7).results
    assert (skipped.outcome, skipped.reason) == (SlotOutcome.SKIPPED, "operation 7 is under way")


def test_a_start_is_remembered_as_the_last() -> None:
    made = settle(schedule(), started(operation=7), NOON + HOUR)
    assert (made.last_slot, made.last_process, made.last_operation) == (NOON + HOUR, "p2", 7)
    assert made.recent == (started(operation=7),) and made.starting is None


@pytest.mark.parametrize(
    ("last", "accounted", "beside"), [("p1", None, ("p1",)), ("p1", "p1", ()), ("p2", None, ()), (None, None, ())]
)
def test_only_an_instance_whose_end_is_not_accounted_is_kept_beside(
    last: str | None, accounted: str | None, beside: tuple[str, ...]
) -> None:
    made = schedule().evolve(last_process=last, accounted=accounted)
    assert settle(made, started(), NOON + HOUR).beside == beside


def test_an_instance_that_left_a_marker_disables_the_schedule() -> None:
    made = schedule().evolve(last_process="p1")
    broken = Instance(process("broken", RETRIABLE, key="p1"), marker="nightly")
    disabled = decide(made, [broken], NOON + HOUR).schedule.disabled
    assert disabled is not None and disabled.reason == f"failed with the code {RETRIABLE}, for good"


def test_a_disabled_schedule_is_looked_at_only_for_its_marker() -> None:
    disabled = Disabled(process="p1", code=RETRIABLE, reason="failed", at=NOON, marker="nightly")
    assert decide(schedule().evolve(disabled=disabled), [], NOON).schedule.recovery_time == NOON + timedelta(seconds=10)
    without = disabled.evolve(marker=None)
    assert decide(schedule().evolve(disabled=without), [], NOON).schedule.recovery_time is None


@pytest.mark.parametrize(("minutes", "taken_back"), [(30, False), (60, False), (61, True)])
def test_a_clock_that_was_ahead_by_more_than_an_hour_is_corrected(minutes: int, taken_back: bool) -> None:
    """A smaller difference is waited out. Otherwise slots would be decided on twice."""
    life = Life(schedule(overlap="allow"))
    life.look(NOON + HOUR * 3)
    found = decide(life.schedule, [], NOON + HOUR * 3 - MINUTE * minutes).schedule
    assert found.next_slot == NOON + HOUR * (2 if taken_back else 4)


def test_slots_after_the_end_are_not_caught_up() -> None:
    made = schedule(ends_at="2026-11-23T15:30", overlap="allow")
    assert Life(made).look(NOON + HOUR * 10) == ["missed 23 13:00", "started 23 15:00"]


@pytest.mark.parametrize("jitter", [-1e20, -1.0, float("nan")])
def test_a_jitter_that_is_none_delays_no_slot(jitter: float) -> None:
    """Another program wrote it."""
    made = schedule()
    assert made.code is not None
    assert due_at(made.evolve(code=made.code.evolve(jitter=jitter)), NOON) == NOON


@pytest.mark.parametrize("hours", [0, 10])
def test_a_next_slot_after_the_end_is_never_started(hours: int) -> None:
    """Another program set the end, and left the next slot."""
    made = schedule(ends_at="2026-11-23T12:30", overlap="allow").evolve(next_slot=NOON + HOUR, recovery_time=NOON)
    life = Life(made)
    assert life.look(NOON + HOUR * hours) == []
    assert life.schedule.ended and life.schedule.recovery_time is None


@pytest.mark.parametrize(("seconds", "outcome"), [(60, "started"), (60.001, "missed")])
def test_a_slot_is_on_time_for_a_minute(seconds: float, outcome: str) -> None:
    told = Life(schedule(catch_up="none")).look(NOON + HOUR + timedelta(seconds=seconds))
    assert told == [f"{outcome} 23 13:00"]


def test_a_last_slot_that_is_not_due_yet_for_its_jitter_waits_alone() -> None:
    made = schedule(jitter="59m", overlap="allow", catch_up="all")
    last = next(slot for slot in (NOON + HOUR * hour for hour in range(3, 20)) if due_at(made, slot) > slot + MINUTE)
    told = Life(made).look(last + MINUTE)
    hours = int((last - NOON) / HOUR)
    assert told[-2:] == [f"started 23 {12 + hour}:00" for hour in (hours - 2, hours - 1)]
    assert len(told) == min(hours - 1, 10) + (hours - 1 > 10)


@pytest.mark.parametrize(
    ("hours", "others"),
    [(1.5, ""), (2.5, "and 1 after it, "), (3.5, "and 2 after it, "), (2000.5, "and at least 1,000 after it, ")],
)
def test_slots_that_are_missed_are_counted_in_one_result(hours: float, others: str) -> None:
    when = NOON + HOUR * hours
    (missed,) = decide(schedule(catch_up="none"), [], when).results
    assert (missed.slot, missed.outcome) == (NOON + HOUR, SlotOutcome.MISSED)
    assert missed.reason == f"{others}not caught up when it was checked, at {when:%Y-%m-%d %H:%M:%S} UTC"


@pytest.mark.parametrize(("passed", "missed"), [(1000, 0), (1001, 1), (3000, 2000)])
def test_of_a_thousand_slots_that_are_caught_up_none_is_forgotten(passed: int, missed: int) -> None:
    """With the largest limit that there is: what was missed before them is reported."""
    made = schedule(catch_up="all", catch_up_limit=1000)
    decided = decide(made, [], NOON + HOUR * passed)
    assert decided.schedule.starting is not None
    assert decided.schedule.starting.slot == NOON + HOUR * (1 + missed)
    reasons = [one.reason or "" for one in decided.results if one.outcome is SlotOutcome.MISSED]
    told = {0: [], 1: ["not caught up"], 2000: ["and at least 1,000 after it"]}[missed]
    assert [reason.startswith(text) for reason, text in zip(reasons, told, strict=True)] == [True] * len(told)


def test_a_queued_slot_says_what_it_waits_for() -> None:
    made = schedule(overlap="queue")
    behind_process = decide(made, [Instance(process("running", key="p1"))], NOON + HOUR)
    behind_slots = decide(made.evolve(waiting=(NOON,)), [], NOON + HOUR)
    assert [one.reason for one in behind_process.results] == ["process p1 still runs"]
    assert [one.reason for one in behind_slots.results] == ["behind queued slots"]
    assert behind_slots.schedule.starting is not None and behind_slots.schedule.starting.slot == NOON


def test_a_slot_that_finds_the_queue_full_is_skipped() -> None:
    made = schedule(overlap="queue", catch_up_limit=2).evolve(waiting=(NOON - HOUR, NOON))
    (skipped,) = decide(made, [Instance(process("running", key="p1"))], NOON + HOUR).results
    assert skipped.outcome is SlotOutcome.SKIPPED
    assert skipped.reason == "2 slots are queued already, which is catch_up_limit"
