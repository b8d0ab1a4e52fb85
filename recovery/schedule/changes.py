"""Changes of a schedule by deployments and operators: pure functions from the present record to the changed one.

The engine writes the changed record by compare-and-set, and calls the function again if another program was first.
"""

from __future__ import annotations

from datetime import datetime

from recovery.errors import InputError
from recovery.records.schedule import Keyed, OperatorWord, Overlap, Plan, Schedule, ScheduledOrders, Starting
from recovery.schedule import judge
from recovery.schedule.grid import first_slot
from recovery.schedule.judge import from_now, with_deadline
from recovery.schedule.plan_checks import check
from recovery.schedule.plan_damage import check_sound

KEPT_CHANGES = 10
"""Number of operators' changes that are kept, which is the number that is displayed."""
_TIMES = ("schedule", "time_zone", "starts_at", "ends_at")
"""Settings that determine the slots. A change of any other setting does not change the next slot."""


def added(name: str, process_type: str, plan: Plan, word: OperatorWord, now: datetime) -> Schedule:
    """Return a new schedule that an operator adds."""
    return _begun_first_time(Schedule(id=name, type=process_type, overrides=plan, changes=(word,)), now)


def ordering(name: str, orders: ScheduledOrders, plan: Plan, word: OperatorWord, now: datetime) -> Schedule:
    """Return a new schedule of operations that an operator adds.

    Raises:
        InputError: The plan has a setting that only schedules of processes can have.
    """
    schedule = Schedule(id=name, type=f"operation {orders.kind}", orders=orders, overrides=plan, changes=(word,))
    _check_orders(schedule)
    return _begun_first_time(schedule, now)


def _check_orders(schedule: Schedule) -> None:
    if schedule.orders is None:
        return
    plan, where = schedule.overrides or Plan(), f"schedule {schedule.id}"
    for name in ("arguments", "retry_across", "retry_across_count"):
        if getattr(plan, name) is not None:
            raise InputError(f"{where}: {name} is for schedules of processes, and this one orders operations")
    if plan.overlap is Overlap.ALLOW:
        raise InputError(f"{where}: overlap=allow: only one of its operations may run at a time; give skip or queue")


def declared(schedule: Schedule | None, process_type: str, plan: Plan | None, now: datetime) -> Schedule | None:
    """Return the schedule with the plan that the code of its process type declares now.

    An operator's settings are kept, and have priority.

    Args:
        schedule: The present schedule, if any.
        process_type: The process type.
        plan: The plan in the code; None if the code declares none any more.
        now: The time.

    Returns:
        The schedule; None if neither the code nor an operator has a schedule.
    """
    if schedule is None:
        return None if plan is None else _begun(Schedule(id=process_type, type=process_type, code=plan), now)
    if schedule.code == plan:
        return schedule
    return _with_new_plan(schedule, schedule.evolve(code=plan), now)


def overridden(schedule: Schedule, changes: Plan, word: OperatorWord, now: datetime) -> Schedule:
    """Return the schedule with an operator's settings, which have priority over the code's."""
    overrides = changes.over(schedule.overrides or Plan())
    return with_word(_with_new_plan(schedule, schedule.evolve(overrides=overrides), now), word)


def unset(schedule: Schedule, names: tuple[str, ...], word: OperatorWord, now: datetime) -> Schedule:
    """Return the schedule with the code's values, or the defaults, for these settings.

    Raises:
        InputError: Nothing would say any more when the schedule is due.
    """
    overrides = (schedule.overrides or Plan()).without(names)
    changed = schedule.evolve(overrides=None if overrides == Plan() else overrides)
    if schedule.code is None and "schedule" in names:
        raise InputError(
            f"schedule {schedule.id}: the code has no schedule for it; `recovery schedule remove` it, or `set` one"
        )
    return with_word(_with_new_plan(schedule, changed, now), word)


def paused(schedule: Schedule, word: OperatorWord, now: datetime) -> Schedule:
    """Return the schedule as paused: it starts nothing until it is resumed."""
    return with_word(with_deadline(schedule.evolve(paused=word), now), word)


def resumed(schedule: Schedule, word: OperatorWord, now: datetime) -> Schedule:
    """Return the schedule as resumed. It starts with the next slot, because slots during the pause were not wanted."""
    check_sound(schedule)
    return with_word(from_now(schedule.evolve(paused=None), now), word)


def enabled(schedule: Schedule, word: OperatorWord, now: datetime) -> Schedule:
    """Return the schedule as enabled after a non-recoverable failure, from the next slot on.

    No failures are counted any more.
    """
    check_sound(schedule)
    return with_word(judge.enabled(schedule, now), word)


def triggered(schedule: Schedule, word: OperatorWord, now: datetime) -> Schedule:
    """Return the schedule with an instance that is to be started now.

    Raises:
        InputError: The schedule is disabled, or an instance is being started.
    """
    if schedule.disabled is not None:
        raise InputError(
            f"schedule {schedule.id} is disabled: {schedule.disabled.reason}; `recovery schedule enable` it first"
        )
    if schedule.starting is not None:
        raise InputError(f"schedule {schedule.id}: an instance is being started now; try again")
    check_sound(schedule)
    starting = Starting(slot=now.replace(microsecond=now.microsecond // 1000 * 1000), triggered=True)
    return with_word(with_deadline(schedule.evolve(starting=starting), now), word)


def keyed(schedule: Schedule, found: Keyed, now: datetime) -> Schedule:
    """Return the schedule with the key that its processes have."""
    return with_deadline(schedule.evolve(keyed=found), now)


def _with_new_plan(previous_schedule: Schedule, schedule: Schedule, now: datetime) -> Schedule:
    _check_orders(schedule)
    plan, previous = schedule.plan, previous_schedule.plan
    if plan.arguments != previous.arguments:
        schedule = schedule.evolve(keyed=None)
    if any(getattr(plan, name) != getattr(previous, name) for name in _TIMES):
        return _begun(schedule, now)
    if plan.schedule is not None:
        check_sound(schedule)
        check(plan, f"schedule {schedule.id}")
    return with_deadline(schedule, now)


def _begun_first_time(schedule: Schedule, now: datetime) -> Schedule:
    if schedule.plan.schedule is None:
        raise InputError(f"schedule {schedule.id}: no times are given: give schedule=CRONTAB or schedule=INTERVAL")
    return _begun(schedule, now)


def _begun(schedule: Schedule, now: datetime) -> Schedule:
    plan = schedule.plan
    if plan.schedule is None:  # the code no longer declares a schedule
        return with_deadline(schedule.evolve(next_slot=None), now)
    check_sound(schedule)
    check(plan, f"schedule {schedule.id}")
    return with_deadline(schedule.evolve(next_slot=first_slot(plan, now)), now)


def with_word(schedule: Schedule, word: OperatorWord) -> Schedule:
    """Return the schedule with an operator's change added. Only the last KEPT_CHANGES changes are kept."""
    return schedule.evolve(changes=(*schedule.changes, word)[-KEPT_CHANGES:])


def instance_id(schedule: Schedule, starting: Starting) -> str:
    """Return the custom id of a slot's process or operation. It is the same whoever starts the slot."""
    return f"{schedule.id}@{'trigger ' if starting.triggered else ''}{moment_text(starting.slot)}"


def moment_text(moment: datetime) -> str:
    """Return a moment in UTC, to the second, or to the millisecond if it has a fraction."""
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds").replace("+00:00", "Z")


def knows(schedule: Schedule, process_id: str, custom_id: str | None) -> bool:
    """Return whether the schedule has started a process, or is just starting it.

    An unknown process is a duplicate: a suspended worker started it, after another worker had started the same
    occurrence and the process of that occurrence had ended and been removed.
    """
    started = {
        schedule.last_process,
        schedule.accounted,
        *schedule.beside,
        *(result.process for result in schedule.recent),
    }
    is_starting = schedule.starting is not None and instance_id(schedule, schedule.starting) == custom_id
    return is_starting or process_id in started
