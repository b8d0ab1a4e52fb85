"""Changes of a schedule's record by deployments and operators."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.errors import InputError
from recovery.records.operation import OperationKind
from recovery.records.schedule import Disabled, Keyed, OperatorWord, Schedule, ScheduledOrders, Starting
from recovery.schedule import changes as states
from recovery.schedule import plan_of

HOUR = timedelta(hours=1)
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
DAILY = {"schedule": "0 1 * * *"}
ONE_O_CLOCK = datetime(2026, 11, 24, 1, tzinfo=UTC)
ORDERS = ScheduledOrders(kind=OperationKind.COLLECT, selection="ended:within(30d)", reason="disk space")


def word(what: str = "set") -> OperatorWord:
    return OperatorWord(what=what, by="me", reason="a test", at=NOON)


def added(**said: Any) -> Schedule:
    """Return a daily schedule that an operator added at noon."""
    return states.added("nightly", "report", plan_of(DAILY | said, "a test"), word("add"), NOON)


def declared(**said: Any) -> Schedule:
    """Return a daily schedule that the code declares, with a known key."""
    made = states.declared(None, "report", plan_of(DAILY | said, "a test"), NOON)
    assert made is not None
    return states.keyed(made, Keyed(arguments="[[],{}]"), NOON)


def ordering(**said: Any) -> Schedule:
    """Return a daily schedule of operations."""
    return states.ordering("cleanup", ORDERS, plan_of(DAILY | said, "a test"), word("add"), NOON)


def overridden(made: Schedule, **said: Any) -> Schedule:
    return states.overridden(made, plan_of(said, "a test"), word(), NOON)


def disabled(reason: str, marker: str | None = None) -> Disabled:
    return Disabled(process="p1", code=40000, reason=reason, at=NOON, marker=marker)


def test_an_added_schedule_has_the_operators_plan_and_its_first_slot() -> None:
    made = added(overlap="queue")
    assert (made.id, made.type, made.code, made.orders) == ("nightly", "report", None, None)
    assert made.overrides == plan_of(DAILY | {"overlap": "queue"}, "a test")
    assert (made.next_slot, made.changes) == (ONE_O_CLOCK, (word("add"),))


@pytest.mark.parametrize("make", [added, ordering])
def test_an_added_schedule_needs_a_time(make: Any) -> None:
    with pytest.raises(InputError) as error:
        make(schedule=None, overlap="queue")
    name = "nightly" if make is added else "cleanup"
    assert str(error.value) == (f"schedule {name}: no times are given: give schedule=CRONTAB or schedule=INTERVAL")


def test_a_schedule_without_a_key_is_looked_at_at_once() -> None:
    assert added().recovery_time == NOON
    keyed = states.keyed(added(), Keyed(arguments="[[],{}]", key="eu"), NOON)
    assert keyed.keyed == Keyed(arguments="[[],{}]", key="eu")
    assert keyed.recovery_time is not None and keyed.recovery_time > NOON


def test_a_schedule_of_operations_has_no_key() -> None:
    """An earlier version's scanners look only at what has one."""
    made = ordering(overlap="queue")
    assert (made.id, made.type, made.orders) == ("cleanup", "operation collect", ORDERS)
    assert made.overrides == plan_of(DAILY | {"overlap": "queue"}, "a test")
    assert made.keyed is None
    assert (made.next_slot, made.changes) == (ONE_O_CLOCK, (word("add"),))
    assert made.recovery_time is not None and made.recovery_time > NOON


@pytest.mark.parametrize("said", [{"arguments": {"days": 3}}, {"retry_across": "6h"}, {"retry_across_count": 3}])
def test_a_schedule_of_operations_refuses_settings_of_processes(said: dict[str, Any]) -> None:
    (name,) = said
    told = f"schedule cleanup: {name} is for schedules of processes, and this one orders operations"
    with pytest.raises(InputError) as error:
        ordering(**said)
    assert str(error.value) == told
    with pytest.raises(InputError) as error:
        overridden(ordering(), **said)
    assert str(error.value) == told
    assert overridden(added(), **said).plan.schedule == "0 1 * * *", "a schedule of processes takes it"


def test_a_schedule_of_operations_refuses_overlap_allow() -> None:
    with pytest.raises(InputError) as error:
        ordering(overlap="allow")
    assert str(error.value) == (
        "schedule cleanup: overlap=allow: only one of its operations may run at a time; give skip or queue"
    )
    assert overridden(added(), overlap="allow").plan.overlap == "allow"


def test_other_times_begin_the_schedule_anew() -> None:
    made = declared()
    assert overridden(made, schedule="0 2 * * *").next_slot == ONE_O_CLOCK + HOUR
    assert overridden(made, time_zone="Europe/Berlin").next_slot == ONE_O_CLOCK - HOUR
    assert overridden(made, starts_at="2026-12-01").next_slot == datetime(2026, 12, 1, 1, tzinfo=UTC)
    assert overridden(made, ends_at="2026-11-23T20:00").next_slot is None


def test_other_settings_leave_the_next_slot_where_it_is() -> None:
    """A slot that is overdue is still started after the change."""
    made = declared()
    later = states.overridden(made, plan_of({"overlap": "queue"}, "a test"), word(), NOON + HOUR * 48)
    assert later.next_slot == ONE_O_CLOCK


def test_other_arguments_need_another_key() -> None:
    assert overridden(declared(), overlap="queue").keyed is not None
    assert overridden(declared(), arguments={"region": "eu"}).keyed is None


def test_a_change_is_refused_if_the_settings_do_not_go_together() -> None:
    with pytest.raises(InputError, match="schedule report: give either retry_across"):
        overridden(declared(retry_across="6h"), retry_across_count=3)


def test_a_schedule_that_ended_takes_settings_all_the_same() -> None:
    gone = states.declared(declared(), "report", None, NOON)
    assert gone is not None and gone.plan.schedule is None
    assert overridden(gone, overlap="queue").plan.overlap == "queue"


def test_unset_gives_one_setting_back_to_the_code() -> None:
    made = overridden(declared(jitter="1m"), jitter="5m", overlap="queue")
    back = states.unset(made, ("jitter",), word("unset"), NOON)
    assert back.overrides == plan_of({"overlap": "queue"}, "a test")
    assert (back.plan.jitter, back.plan.overlap) == (60.0, "queue")
    assert states.unset(back, ("overlap",), word("unset"), NOON).overrides is None


def test_unset_leaves_an_added_schedule_its_time() -> None:
    with pytest.raises(InputError) as error:
        states.unset(added(), ("schedule",), word("unset"), NOON)
    assert str(error.value) == (
        "schedule nightly: the code has no schedule for it; `recovery schedule remove` it, or `set` one"
    )
    without = states.unset(added(overlap="queue"), ("overlap",), word("unset"), NOON)
    assert (without.plan.schedule, without.plan.overlap) == ("0 1 * * *", "skip")


def test_a_trigger_starts_an_instance_now() -> None:
    now = NOON + timedelta(seconds=5, microseconds=999_500)
    made = states.triggered(declared(), word("trigger"), now)
    # MongoDB keeps whole milliseconds, and the slot is a part of the custom id.
    assert made.starting == Starting(slot=NOON + timedelta(seconds=5, milliseconds=999), triggered=True)
    assert made.recovery_time == now
    assert (made.next_slot, made.changes) == (ONE_O_CLOCK, (word("trigger"),))


def test_a_trigger_is_refused_while_an_instance_is_being_started() -> None:
    made = states.triggered(declared(), word("trigger"), NOON)
    with pytest.raises(InputError) as error:
        states.triggered(made, word("trigger"), NOON)
    assert str(error.value) == "schedule report: an instance is being started now; try again"


def test_a_trigger_is_refused_for_a_disabled_schedule() -> None:
    made = declared().evolve(disabled=disabled("failed with the code 40000, for good"))
    with pytest.raises(InputError) as error:
        states.triggered(made, word("trigger"), NOON)
    assert str(error.value) == (
        "schedule report is disabled: failed with the code 40000, for good; `recovery schedule enable` it first"
    )


def test_enabling_forgets_the_instances_that_failed() -> None:
    failed = declared().evolve(disabled=disabled("failed", marker="report"), beside=("p0",))
    made = states.enabled(failed, word("enable"), NOON)
    assert (made.disabled, made.failing, made.beside) == (None, None, ())
    assert (made.next_slot, made.changes) == (ONE_O_CLOCK, (word("enable"),))


def test_a_schedule_that_is_resumed_at_a_slot_waits_for_the_next() -> None:
    made = states.paused(declared(), word("pause"), NOON)
    assert states.resumed(made, word("resume"), ONE_O_CLOCK).next_slot == ONE_O_CLOCK + HOUR * 24


def test_a_schedule_that_is_resumed_does_not_begin_before_its_start() -> None:
    """Its next slot is from before an operator moved the start."""
    start = NOON + HOUR * 5
    made = declared(schedule="2h", starts_at=start).evolve(next_slot=NOON)
    assert states.resumed(made, word("resume"), NOON + HOUR).next_slot == start


def test_the_last_ten_changes_are_kept() -> None:
    made = declared()
    for place in range(15):
        made = states.paused(made, word(f"pause {place}"), NOON)
    assert [one.what for one in made.changes] == [f"pause {place}" for place in range(5, 15)]
