"""What deployments and operators make of a schedule: each a pure function from the record as it is to that as it is to
be. The engine writes it by compare-and-set, and asks again where somebody was first."""

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
"""Of what operators did so much is kept: as many as are read."""
_TIMES = ("schedule", "time_zone", "starts_at", "ends_at")
"""What says when slots are; a change of anything else leaves the next slot where it is."""


def added(name: str, process_type: str, plan: Plan, word: OperatorWord, now: datetime) -> Schedule:
    """A schedule that an operator adds."""
    return _first_begun(Schedule(id=name, type=process_type, overrides=plan, changes=(word,)), now)


def ordering(name: str, orders: ScheduledOrders, plan: Plan, word: OperatorWord, now: datetime) -> Schedule:
    """A schedule of operations, which an operator adds. Raises InputError for a plan that only processes can have."""
    made = Schedule(id=name, type=f"operation {orders.kind}", orders=orders, overrides=plan, changes=(word,))
    _check_orders(made)
    return _first_begun(made, now)


def _check_orders(schedule: Schedule) -> None:
    if schedule.orders is None:
        return
    said, what = schedule.overrides or Plan(), f"schedule {schedule.id}"
    for one in ("arguments", "retry_across", "retry_across_count"):
        if getattr(said, one) is not None:
            raise InputError(f"{what}: {one} is for schedules of processes, and this one orders operations")
    if said.overlap is Overlap.ALLOW:
        raise InputError(f"{what}: overlap=allow: of its operations there is one at a time; give skip or queue")


def declared(schedule: Schedule | None, process_type: str, plan: Plan | None, now: datetime) -> Schedule | None:
    """With what the code of a process type says now, which may be nothing any more; None where nothing is to be kept.
    What an operator set stays, and wins."""
    if schedule is None:
        return None if plan is None else _begun(Schedule(id=process_type, type=process_type, code=plan), now)
    if schedule.code == plan:
        return schedule
    return _replanned(schedule, schedule.evolve(code=plan), now)


def overridden(schedule: Schedule, changes: Plan, word: OperatorWord, now: datetime) -> Schedule:
    """With these settings over what the code says."""
    over = changes.over(schedule.overrides or Plan())
    return with_word(_replanned(schedule, schedule.evolve(overrides=over), now), word)


def unset(schedule: Schedule, names: tuple[str, ...], word: OperatorWord, now: datetime) -> Schedule:
    """With the code's word for these settings again, or the default."""
    over = (schedule.overrides or Plan()).without(names)
    changed = schedule.evolve(overrides=None if over == Plan() else over)
    if schedule.code is None and "schedule" in names:
        raise InputError(
            f"schedule {schedule.id}: no code says when it is due; `recovery schedule remove` it, or `set`"
        )
    return with_word(_replanned(schedule, changed, now), word)


def paused(schedule: Schedule, word: OperatorWord, now: datetime) -> Schedule:
    """Started no more until it is resumed."""
    return with_word(with_deadline(schedule.evolve(paused=word), now), word)


def resumed(schedule: Schedule, word: OperatorWord, now: datetime) -> Schedule:
    """Started again, from the next slot on: what passed while it was paused was not wanted."""
    check_sound(schedule)
    return with_word(from_now(schedule.evolve(paused=None), now), word)


def enabled(schedule: Schedule, word: OperatorWord, now: datetime) -> Schedule:
    """Started again after a non-recoverable failure, from the next slot on; its failures count anew."""
    check_sound(schedule)
    return with_word(judge.enabled(schedule, now), word)


def triggered(schedule: Schedule, word: OperatorWord, now: datetime) -> Schedule:
    """With an instance to be started now. Raises InputError for one that is disabled, or of which one is just being
    started."""
    if schedule.disabled is not None:
        raise InputError(
            f"schedule {schedule.id} is disabled: {schedule.disabled.reason}; `recovery schedule enable` it first"
        )
    if schedule.starting is not None:
        raise InputError(f"schedule {schedule.id}: an instance is being started just now; ask again")
    check_sound(schedule)
    starting = Starting(slot=now.replace(microsecond=now.microsecond // 1000 * 1000), triggered=True)
    return with_word(with_deadline(schedule.evolve(starting=starting), now), word)


def keyed(schedule: Schedule, found: Keyed, now: datetime) -> Schedule:
    """With the key that its processes have."""
    return with_deadline(schedule.evolve(keyed=found), now)


def _replanned(before: Schedule, schedule: Schedule, now: datetime) -> Schedule:
    _check_orders(schedule)
    plan, was = schedule.plan, before.plan
    if plan.arguments != was.arguments:
        schedule = schedule.evolve(keyed=None)
    if any(getattr(plan, name) != getattr(was, name) for name in _TIMES):
        return _begun(schedule, now)
    if plan.schedule is not None:
        check_sound(schedule)
        check(plan, f"schedule {schedule.id}")
    return with_deadline(schedule, now)


def _first_begun(schedule: Schedule, now: datetime) -> Schedule:
    if schedule.plan.schedule is None:
        raise InputError(f"schedule {schedule.id}: nothing says when: give schedule=CRONTAB or schedule=INTERVAL")
    return _begun(schedule, now)


def _begun(schedule: Schedule, now: datetime) -> Schedule:
    plan = schedule.plan
    if plan.schedule is None:  # the code does not say so any more
        return with_deadline(schedule.evolve(next_slot=None), now)
    check_sound(schedule)
    check(plan, f"schedule {schedule.id}")
    return with_deadline(schedule.evolve(next_slot=first_slot(plan, now)), now)


def with_word(schedule: Schedule, word: OperatorWord) -> Schedule:
    """With an operator's word, and as many of those before as are kept."""
    return schedule.evolve(changes=(*schedule.changes, word)[-KEPT_CHANGES:])


def instance_id(schedule: Schedule, starting: Starting) -> str:
    """The custom id of a slot's process, or of its operation: whoever starts it again gets the same one."""
    return f"{schedule.id}@{'trigger ' if starting.triggered else ''}{moment_text(starting.slot)}"


def moment_text(moment: datetime) -> str:
    """A moment in UTC, to the second, or to the millisecond where it has some."""
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds").replace("+00:00", "Z")


def knows(schedule: Schedule, process_id: str, custom_id: str | None) -> bool:
    """Whether a process is an occurrence that the schedule has started, or is just starting. Another one was started by
    somebody who stood still while others started this occurrence, and it ended and was removed."""
    started = {schedule.last_process, schedule.accounted, *schedule.beside, *(one.process for one in schedule.recent)}
    is_starting = schedule.starting is not None and instance_id(schedule, schedule.starting) == custom_id
    return is_starting or process_id in started
