"""What is decided on a schedule, with time built and not waited for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.records import ErrorInfo, Process, ProcessState
from recovery.records.schedule import DEFAULTS, Keyed, OperatorWord, Plan, Schedule, SlotOutcome, SlotResult
from recovery.schedule import Instance, decide, plan_of, settle
from recovery.schedule import changes as states
from recovery.schedule.judge import BESIDE, KEPT, MAX_AHEAD, due_at

HOUR = timedelta(hours=1)
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
RETRIABLE, OTHER, NOT_RETRIABLE = 30101, 30102, 40000


def schedule(begun: datetime = NOON, **said: Any) -> Schedule:
    """One that began at noon, with a slot each hour."""
    made = states.declared(None, "nightly", plan_of({"schedule": "0 * * * *", **said}, "a test"), begun)
    assert made is not None
    return states.keyed(made, Keyed(arguments="[[],{}]"), begun)


def process(state: str, code: int | None = None, ended: datetime = NOON, key: str = "p") -> Process:
    error = ErrorInfo(kind="E", message="m", code=code) if state == "broken" else None
    return Process(id=key, type="nightly", args="", state=ProcessState(state), error=error, ended_at=ended)


def word(what: str = "pause") -> OperatorWord:
    return OperatorWord(what=what, by="me", reason="a test", at=NOON)


class Life:
    """A schedule whose instances a test ends as it likes."""

    def __init__(self, made: Schedule, now: datetime = NOON) -> None:
        self.schedule, self.now, self.runs = made, now, 0
        self.processes: dict[str, Process] = {}
        self.started: list[str] = []

    @property
    def instances(self) -> list[Instance]:
        """Those that a schedule's record names: what the engine reads."""
        named = [*self.schedule.beside, self.schedule.last_process]
        return [Instance(self.processes[key]) for key in named if key is not None]

    def look(self, now: datetime) -> list[str]:
        """Look until nothing is due, as a scanner does: [outcome hour:minute]."""
        self.now, told = now, []
        for _ in range(100):
            if self.schedule.recovery_time is None or self.schedule.recovery_time > now:
                return told
            decided = decide(self.schedule, self.instances, now)
            self.schedule, results = decided.schedule, list(decided.results)
            if self.schedule.starting is not None:
                slot = self.schedule.starting.slot
                self.runs += 1
                key = f"p{self.runs}"
                self.processes[key] = process("running", key=key)
                result = SlotResult(slot=slot, outcome=SlotOutcome.STARTED, process=key)
                self.schedule = settle(self.schedule, result, now)
                results.append(result)
            told += [f"{one.outcome} {one.slot:%d %H:%M}" for one in results]
        raise AssertionError("it never comes to an end")

    def end(self, state: str = "finished", code: int | None = None, key: str | None = None) -> None:
        key = key or f"p{self.runs}"
        self.processes[key] = process(state, code, self.now, key)


def test_nothing_before_its_time_and_each_slot_once() -> None:
    life = Life(schedule())
    assert life.look(NOON + HOUR - timedelta(milliseconds=1)) == []
    assert life.look(NOON + HOUR) == ["started 23 13:00"]
    life.end()
    assert life.look(NOON + HOUR) == life.look(NOON + HOUR * 1.9) == []
    assert life.look(NOON + HOUR * 2) == ["started 23 14:00"]


@pytest.mark.parametrize(
    ("catch_up", "told"),
    [
        ("none", ["missed 23 13:00"]),
        ("one", ["missed 23 13:00", "started 23 22:00"]),
        ("all", ["missed 23 13:00", *(f"started 23 {hour}:00" for hour in (20, 21, 22))]),
    ],
)
def test_after_a_night_without_servers(catch_up: str, told: list[str]) -> None:
    life = Life(schedule(catch_up=catch_up, catch_up_limit=3, overlap="allow"))
    assert life.look(NOON + HOUR * 10.5) == told
    missed = life.schedule.recent[0].reason
    assert missed is not None and f"and {len(range(13, 23)) - len(told)} after it, not caught up" in missed
    assert life.look(NOON + HOUR * 11) == ["started 23 23:00"]


def test_what_is_late_by_seconds_is_not_missed() -> None:
    assert Life(schedule(catch_up="none")).look(NOON + HOUR + timedelta(seconds=59)) == ["started 23 13:00"]


def test_a_crash_between_is_the_same_slot_again() -> None:
    """Whoever looks at what is `starting` decides nothing anew, however late it is and whatever became of the last."""
    decided = decide(schedule(), [], NOON + HOUR).schedule
    assert decided.starting is not None and decided.recovery_time == NOON + HOUR
    again = decide(decided, [Instance(process("running"))], NOON + HOUR * 30).schedule
    assert again.starting == decided.starting and again.next_slot == decided.next_slot


def test_skip_is_the_default() -> None:
    life = Life(schedule())
    life.look(NOON + HOUR)
    assert life.look(NOON + HOUR * 2) == ["skipped 23 14:00"]
    assert life.schedule.recent[-1].reason == "process p1 still runs"
    life.end()
    assert life.look(NOON + HOUR * 3) == ["started 23 15:00"]


def test_allow_starts_beside() -> None:
    life = Life(schedule(overlap="allow"))
    assert life.look(NOON + HOUR) + life.look(NOON + HOUR * 2) == ["started 23 13:00", "started 23 14:00"]


def test_instances_that_ran_beside_the_last_are_not_forgotten() -> None:
    """Each runs for longer than an interval, so the last one always runs when its schedule is looked at."""
    life = Life(schedule(overlap="allow", retry_across_count=3))
    for place in range(1, 10):
        life.look(NOON + HOUR * place)
        if place > 1 and life.schedule.disabled is None:
            life.now = NOON + HOUR * (place + 0.5)
            life.end("broken", RETRIABLE, key=f"p{place - 1}")
    assert life.runs == 4
    assert life.schedule.disabled is not None and life.schedule.disabled.process == "p3"
    assert life.schedule.beside == (), "p4 is the last, and runs"


def test_ends_are_looked_at_in_the_order_in_which_they_came() -> None:
    """The one that was started last succeeded between the failures of the others: they are not in a row."""
    life = Life(schedule(overlap="allow", retry_across_count=2))
    for place in (1, 2, 3):
        life.look(NOON + HOUR * place)
    for place, key in enumerate(("p1", "p3", "p2"), start=1):
        life.now = NOON + HOUR * (3 + place / 10)
        life.end("finished" if key == "p3" else "broken", RETRIABLE, key=key)
    life.look(NOON + HOUR * 4)
    failing = life.schedule.failing
    assert life.schedule.disabled is None and failing is not None and (failing.count, failing.process) == (1, "p2")


def test_one_that_runs_beside_the_last_is_run_into_by_none() -> None:
    """As after `trigger --force`."""
    life = Life(schedule(overlap="allow"))
    life.look(NOON + HOUR)
    life.look(NOON + HOUR * 2)
    life.schedule = states.overridden(life.schedule, plan_of({"overlap": "skip"}, "a test"), word(), life.now)
    life.end()
    assert life.look(NOON + HOUR * 3) == ["skipped 23 15:00"]
    assert life.schedule.recent[-1].reason == "process p1 still runs"


def test_what_is_kept_of_instances_has_a_bound() -> None:
    life = Life(schedule(overlap="allow"))
    for place in range(1, BESIDE + 10):
        life.look(NOON + HOUR * place)
    assert len(life.schedule.beside) == BESIDE and life.schedule.beside[-1] == f"p{life.runs - 1}"


def test_queue_waits_for_the_end_in_order_and_within_bounds() -> None:
    life = Life(schedule(overlap="queue", catch_up_limit=2))
    life.look(NOON + HOUR)
    told = [one for hour in (2, 3, 4) for one in life.look(NOON + HOUR * hour)]
    assert told == ["queued 23 14:00", "queued 23 15:00", "skipped 23 16:00"]
    assert life.schedule.recovery_time is not None
    assert life.schedule.recovery_time - life.now <= timedelta(seconds=5), "somebody looks for its end soon"
    life.end()
    assert life.look(NOON + HOUR * 4.5) == ["started 23 14:00"]
    assert life.look(NOON + HOUR * 5) == ["queued 23 17:00"]
    life.end()
    assert life.look(NOON + HOUR * 5.5) == ["started 23 15:00"]


def test_a_clock_that_jumps_back_starts_nothing_twice() -> None:
    life = Life(schedule(overlap="allow"))
    assert life.look(NOON + HOUR * 2) == ["missed 23 13:00", "started 23 14:00"]
    for minutes in range(180):
        assert life.look(NOON + timedelta(minutes=minutes) - HOUR) == []
    assert life.look(NOON + HOUR * 3) == ["started 23 15:00"]


def test_a_clock_that_was_a_year_ahead_and_comes_back_does_not_stop_the_schedule() -> None:
    life = Life(schedule(overlap="allow"))
    year = timedelta(days=365)
    assert life.look(NOON + year) == ["missed 23 13:00", "started 23 12:00"]
    deadline = life.schedule.recovery_time
    assert deadline is not None and deadline <= NOON + year + MAX_AHEAD, "so what is further off was written so"
    life.schedule = life.schedule.evolve(recovery_time=NOON)  # found for its deadline: `to_look_at`
    assert life.look(NOON + HOUR / 2) == []
    assert life.look(NOON + HOUR) == ["started 23 13:00"]
    assert life.look(NOON + HOUR * 2) == ["started 23 14:00"]


def test_jitter_is_the_same_whoever_asks_and_within_its_bounds() -> None:
    made = schedule(jitter="10m")
    slots = [NOON + HOUR * hour for hour in range(200)]
    late = [due_at(made, slot) - slot for slot in slots]
    assert late == [due_at(made, slot) - slot for slot in slots]
    assert timedelta(0) <= min(late) < timedelta(minutes=1) and timedelta(minutes=9) < max(late) < timedelta(minutes=10)
    due = due_at(made, NOON + HOUR)
    life = Life(made)
    assert life.look(due - timedelta(milliseconds=1)) == []
    assert life.look(due) == ["started 23 13:00"]


def test_jitter_catches_up_only_what_is_due() -> None:
    made = schedule(jitter="59m", overlap="allow", catch_up="all")
    between = max(NOON + HOUR * 2, due_at(made, NOON + HOUR))
    told = Life(made).look(between)
    assert told == [f"started 23 {hour}:00" for hour in (13, 14) if due_at(made, NOON.replace(hour=hour)) <= between]


def test_from_its_start_to_its_end() -> None:
    life = Life(schedule(starts_at="2026-11-23T15:00", ends_at="2026-11-23T16:30"))
    told = []
    for minutes in range(0, 600, 30):
        told += life.look(NOON + timedelta(minutes=minutes))
        if life.runs:
            life.end()
    assert told == ["started 23 15:00", "started 23 16:00"]
    assert life.schedule.ended and life.schedule.recovery_time is None


def test_paused_nothing_is_due_and_resumed_it_goes_on_from_then() -> None:
    life = Life(schedule(catch_up="all"))
    life.schedule = states.paused(life.schedule, word(), NOON)
    assert life.schedule.recovery_time is None and life.look(NOON + HOUR * 5) == []
    life.schedule = states.resumed(life.schedule, word("resume"), NOON + HOUR * 5.5)
    assert life.look(NOON + HOUR * 5.9) == []
    assert life.look(NOON + HOUR * 6) == ["started 23 18:00"]


def test_an_interval_keeps_its_places_through_a_pause() -> None:
    life = Life(schedule(schedule="45m"))
    life.schedule = states.paused(life.schedule, word(), NOON)
    life.schedule = states.resumed(life.schedule, word("resume"), NOON + HOUR * 3.1)
    assert life.schedule.next_slot == NOON + timedelta(minutes=45 * 5)


def test_an_operators_word_outlives_a_deployment_and_both_are_told_apart() -> None:
    said = plan_of({"schedule": "30 2 * * *", "jitter": "5m"}, "a test")
    made = states.overridden(schedule(overlap="queue"), said, word("set"), NOON)
    deployed = states.declared(made, "nightly", plan_of({"schedule": "0 1 * * *", "jitter": 3}, "a test"), NOON)
    assert deployed is not None
    assert (deployed.plan.schedule, deployed.plan.jitter) == ("30 2 * * *", 300.0)
    assert deployed.plan.overlap == DEFAULTS.overlap, "what the code says no more"
    assert deployed.code is not None and deployed.code.schedule == "0 1 * * *"
    back = states.unset(deployed, ("schedule", "jitter"), word("unset"), NOON)
    assert (back.plan.schedule, back.plan.jitter, back.overrides) == ("0 1 * * *", 3.0, None)
    assert f"{back.next_slot:%d %H}" == "24 01"


def test_a_deployment_that_changes_nothing_writes_nothing() -> None:
    made = schedule()
    assert states.declared(made, "nightly", made.code, NOON + HOUR) is made


def test_a_schedule_that_the_code_has_no_more_is_at_rest() -> None:
    gone = states.declared(schedule(), "nightly", None, NOON)
    assert gone is not None and gone.ended and gone.recovery_time is None
    assert states.declared(None, "nightly", None, NOON) is None


def test_what_is_kept_of_slots_has_a_bound() -> None:
    life = Life(schedule())
    for hour in range(1, 50):
        life.look(NOON + HOUR * hour)
    assert len(life.schedule.recent) == KEPT


def fail_each_hour(made: Schedule, codes: list[int | None]) -> Life:
    """Its instances end half an hour after their start, with these codes; 0 is a success."""
    life = Life(made)
    for place, code in enumerate(codes, start=1):
        life.look(NOON + HOUR * place)
        if life.schedule.disabled is not None:
            break
        life.now = NOON + HOUR * (place + 0.5)
        life.end("finished") if code == 0 else life.end("broken", code)
    life.look(NOON + HOUR * (len(codes) + 1))
    return life


def test_the_same_code_for_longer_than_allowed_disables() -> None:
    life = fail_each_hour(schedule(retry_across="3h"), [RETRIABLE] * 10)
    disabled = life.schedule.disabled
    assert disabled is not None and life.runs == 4, "at 13:30, then for 1, 2 and 3 h"
    assert disabled.reason == f"failed with the code {RETRIABLE} for 3h; retry_across allows 3h"
    assert (disabled.code, disabled.process, disabled.marker) == (RETRIABLE, "p4", "nightly")
    deadline = life.schedule.recovery_time
    assert deadline is not None and deadline - life.now <= timedelta(seconds=10), "its marker is looked for"


@pytest.mark.parametrize("between", [0, OTHER])
def test_another_code_or_a_success_in_between_begins_anew(between: int) -> None:
    life = fail_each_hour(schedule(retry_across="3h"), [RETRIABLE] * 3 + [between] + [RETRIABLE] * 3)
    assert life.schedule.disabled is None and life.runs == 8
    failing = life.schedule.failing
    assert failing is not None and (failing.code, failing.count) == (RETRIABLE, 3)


def test_by_count() -> None:
    life = fail_each_hour(schedule(retry_across_count=3), [RETRIABLE] * 10)
    assert life.runs == 3
    assert life.schedule.disabled is not None and "3 times in a row" in life.schedule.disabled.reason


@pytest.mark.parametrize("code", [NOT_RETRIABLE, None, 10020, 7])
def test_a_code_that_is_not_retriable_is_the_end_at_once(code: int | None) -> None:
    life = fail_each_hour(schedule(retry_across="3h"), [code] * 10)
    assert life.runs == 1
    assert life.schedule.disabled is not None and life.schedule.disabled.code == (code or 40000)


def test_where_nothing_is_said_of_it_each_slot_is_started() -> None:
    life = fail_each_hour(schedule(), [NOT_RETRIABLE] * 10)
    assert life.schedule.disabled is None and life.runs == 11
    assert life.schedule.failing is not None and life.schedule.failing.count == 10


def test_an_aborted_instance_is_neither() -> None:
    life = Life(schedule(retry_across="3h"))
    for place in range(1, 6):
        life.look(NOON + HOUR * place)
        life.now = NOON + HOUR * (place + 0.5)
        life.end("aborted") if place == 2 else life.end("broken", RETRIABLE)
    life.look(NOON + HOUR * 6)
    assert life.schedule.disabled is not None and life.runs == 4


def test_an_end_is_accounted_once_however_often_it_is_looked_at() -> None:
    life = Life(schedule(retry_across_count=5))
    life.look(NOON + HOUR)
    life.end("broken", RETRIABLE)
    made = life.schedule
    for _ in range(10):
        made = decide(made, life.instances, NOON + HOUR * 1.5).schedule
    assert made.failing is not None and made.failing.count == 1


def test_enabled_again_it_goes_on_and_counts_anew() -> None:
    life = fail_each_hour(schedule(retry_across_count=2), [RETRIABLE] * 2)
    assert life.schedule.disabled is not None
    life.schedule = states.enabled(life.schedule, word("enable"), NOON + HOUR * 9.5)
    assert life.look(NOON + HOUR * 10) == ["started 23 22:00"]
    life.end("broken", RETRIABLE)
    life.look(NOON + HOUR * 11)
    assert life.schedule.disabled is None and life.schedule.failing is not None and life.schedule.failing.count == 1


def test_the_defaults_go_together() -> None:
    assert Plan().over(DEFAULTS) == DEFAULTS
