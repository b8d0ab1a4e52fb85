"""Decisions about a schedule: what must be done now. Each decision handles one slot by one change of the record.

`decide` judges the ends of earlier instances, then the due slots, and returns the changed schedule. Its field
`starting` has the slot to start. It is written before anything is started, so that all workers start the same slot.
`settle` then records the result of the start. The caller gives the time, which is the database's.

If a clock jumps back, no slot becomes due twice, because slots only advance. If a clock jumped far ahead and comes
back, or another program wrote the record, the next slot may be in the far future. Then the next slot is moved back to
the present. A slot that was already started is not started twice, because its process has the slot's custom id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from recovery.records import Process, ProcessState
from recovery.records.schedule import CatchUp, Overlap, Schedule, SlotOutcome, SlotResult, Starting
from recovery.schedule.across import account
from recovery.schedule.grid import MAX_COUNTED, first_slot, grid_of, next_slot

ON_TIME = timedelta(seconds=60)
"""The longest delay after which a slot still counts as on time if nothing is caught up.

It covers a failover, a deployment, or a busy scanner.
"""
MAX_AHEAD = timedelta(hours=1)
"""The longest time until a schedule is examined again. A later deadline was written by a wrong clock."""
QUEUE_LOOK = timedelta(seconds=5)
"""Interval of checks whether the running instance has ended, while slots are queued. A check is one read."""
MARKER_LOOK = timedelta(seconds=10)
"""Interval of checks whether the marker that disables a schedule was cleared. A check is one read."""
BESIDE = 100
"""Maximum number of parallel instances whose ends are judged. The ends of older instances are ignored."""
KEPT = 20
"""Number of slots whose results are kept, which is the number that a terminal shows."""
_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Instance:
    """A process of a schedule whose end is not judged yet, as read from a majority of MongoDB's members."""

    process: Process
    marker: str | None = None
    """The name of the marker that the process left; None if it left none."""

    @property
    def runs(self) -> bool:
        return self.process.state is ProcessState.RUNNING


@dataclass(frozen=True, slots=True)
class Decided:
    """The changed schedule, and the results of the decision."""

    schedule: Schedule
    results: tuple[SlotResult, ...] = field(default=())
    """Results of slots that are not started."""


def due_at(schedule: Schedule, slot: datetime) -> datetime:
    """Return when a slot is to be started: its time plus a share of the jitter, which is the same for all callers."""
    jitter = max(0.0, min(schedule.plan.jitter or 0.0, (_LAST - slot).total_seconds()))
    digest = blake2b(f"{schedule.id}\0{slot.isoformat()}".encode(), digest_size=4).digest()
    return slot + timedelta(seconds=round(jitter * int.from_bytes(digest, "big") / 2**32, 3))


def decide(schedule: Schedule, instances: Sequence[Instance], now: datetime, operation: int | None = None) -> Decided:
    """Return what must be done now.

    Args:
        schedule: The schedule.
        instances: The last instance and the instances that ran in parallel, except those that were removed.
        now: The time.
        operation: The number of the schedule's last operation, if it is under way.
    """
    schedule = _with_ends_judged(schedule, instances, now)
    if schedule.starting is not None or schedule.paused is not None or schedule.disabled is not None:
        return Decided(with_deadline(schedule, now))
    running = next((f"process {instance.process.id} still runs" for instance in instances if instance.runs), None)
    if operation is not None:
        running = f"operation {operation} is under way"
    schedule = _with_possible_slot(schedule, now)
    schedule, results = _decide_due_slots(schedule, running, now)
    if schedule.starting is None and schedule.waiting and running is None:
        first, *others = schedule.waiting
        schedule = schedule.evolve(starting=Starting(slot=first), waiting=tuple(others))
    return Decided(with_deadline(noted(schedule, *results), now), tuple(results))


def settle(schedule: Schedule, result: SlotResult, now: datetime) -> Schedule:
    """Return the schedule with the result of the slot that was to be started."""
    schedule = schedule.evolve(starting=None)
    if result.outcome is SlotOutcome.STARTED:
        last = schedule.last_process
        if last is not None and last not in (schedule.accounted, result.process):
            schedule = schedule.evolve(beside=(*schedule.beside, last)[-BESIDE:])
        schedule = schedule.evolve(last_slot=result.slot, last_process=result.process, last_operation=result.operation)
    return with_deadline(noted(schedule, result), now)


def enabled(schedule: Schedule, now: datetime) -> Schedule:
    """Return the schedule as no longer disabled, from the next slot on.

    No failures are counted any more.
    """
    return from_now(schedule.evolve(disabled=None, failing=None, beside=()), now)


def from_now(schedule: Schedule, now: datetime) -> Schedule:
    """Return the schedule with its next slot after now. An interval's slots stay multiples of the interval apart."""
    plan, slot = schedule.plan, schedule.next_slot
    if slot is not None and slot <= now:
        slot = first_slot(plan.evolve(starts_at=max(slot, plan.starts_at) if plan.starts_at else slot), now)
    return with_deadline(schedule.evolve(next_slot=slot), now)


def is_next_slot_impossible(schedule: Schedule, now: datetime) -> bool:
    """Return whether the next slot is later than the plan allows at this time."""
    slot, soon = schedule.next_slot, now + MAX_AHEAD
    if slot is None or slot <= soon:
        return False
    last = max((result.slot for result in schedule.recent if not result.triggered), default=now)
    again = first_slot(schedule.plan, now)
    return again is None or again + MAX_AHEAD < slot or (last > soon and again < slot)


def noted(schedule: Schedule, *results: SlotResult) -> Schedule:
    """Return the schedule with these results added. Only the last KEPT results are kept."""
    return schedule.evolve(recent=(*schedule.recent, *results)[-KEPT:]) if results else schedule


def with_deadline(schedule: Schedule, now: datetime) -> Schedule:
    """Return the schedule with the time of its next check, or without one if it needs no check."""
    return schedule.evolve(recovery_time=_deadline(schedule, now))


def _deadline(schedule: Schedule, now: datetime) -> datetime | None:
    if schedule.starting is not None:
        return now
    if schedule.paused is not None:
        return None
    if schedule.disabled is not None:
        return now + MARKER_LOOK if schedule.disabled.marker is not None else None
    if schedule.keyed is None and schedule.orders is None and not schedule.ended:
        return now
    moments = []
    if schedule.next_slot is not None:
        moments.append(due_at(schedule, schedule.next_slot))
    if schedule.waiting:
        moments.append(now + QUEUE_LOOK)
    return min(*moments, now + MAX_AHEAD) if moments else None


def _with_ends_judged(schedule: Schedule, instances: Sequence[Instance], now: datetime) -> Schedule:
    """Return the schedule after judging the ends of instances, in the order in which they ended."""
    for instance in sorted(instances, key=lambda instance: instance.process.ended_at or now):
        if (result := account(schedule, instance.process, now, instance.marker)) is None:
            continue
        schedule = schedule.evolve(failing=result.failing, disabled=schedule.disabled or result.disabled)
        if instance.process.id == schedule.last_process:
            schedule = schedule.evolve(accounted=instance.process.id)
    running = {instance.process.id for instance in instances if instance.runs}
    still_running = tuple(process for process in schedule.beside if process in running)
    return schedule if still_running == schedule.beside else schedule.evolve(beside=still_running)


def _with_possible_slot(schedule: Schedule, now: datetime) -> Schedule:
    """Return the schedule with the first slot after now if its next slot is later than the plan allows.

    Such a slot was written by a wrong clock or by another program.
    """
    if not is_next_slot_impossible(schedule, now):
        return schedule
    return schedule.evolve(next_slot=first_slot(schedule.plan, now))


def _decide_due_slots(schedule: Schedule, running: str | None, now: datetime) -> tuple[Schedule, list[SlotResult]]:
    """Decide on the due slots, up to the first slot that is started.

    Args:
        schedule: The schedule.
        running: A text that says that the previous instance runs; None if it does not.
        now: The time.

    Returns:
        The changed schedule, and the results of slots that are not started.
    """
    plan, first = schedule.plan, schedule.next_slot
    grid = grid_of(plan)
    past_end = first is not None and plan.ends_at is not None and first > plan.ends_at
    if grid is None or past_end:  # without a further slot the schedule needs no deadline
        return schedule.evolve(next_slot=None), []
    if first is None or due_at(schedule, first) > now:
        return schedule, []
    until = now if plan.ends_at is None else min(now, plan.ends_at)
    max_kept = (plan.catch_up_limit or 1) if plan.catch_up is CatchUp.ALL else 1
    slots, count = grid.latest(first, until, max_kept + 1)
    if due_at(schedule, slots[-1]) > now:  # because of the jitter, the last slot may not be due yet
        slots, count = slots[:-1], count - 1
    slots = slots[-max_kept:]
    results = []
    if plan.catch_up is CatchUp.NONE and now - due_at(schedule, slots[-1]) > ON_TIME:
        last, slots, kept = slots[-1], [], 0
    else:
        last, kept = slots[0], len(slots)
    if missed := count - kept:
        results.append(_missed_result(first, missed, now))
    schedule = schedule.evolve(next_slot=next_slot(plan, last))
    if slots:
        schedule, result = _decide_slot(schedule, slots[0], running)
        results += result
    return schedule, results


def _missed_result(first: datetime, count: int, now: datetime) -> SlotResult:
    prefix = "at least " if count > MAX_COUNTED else ""
    others = f"and {prefix}{min(count - 1, MAX_COUNTED):,} after it, " if count > 1 else ""
    reason = f"{others}not caught up when it was checked, at {now:%Y-%m-%d %H:%M:%S} UTC"
    return SlotResult(slot=first, outcome=SlotOutcome.MISSED, reason=reason)


def _decide_slot(schedule: Schedule, slot: datetime, running: str | None) -> tuple[Schedule, list[SlotResult]]:
    plan = schedule.plan
    if plan.overlap is Overlap.QUEUE and (running is not None or schedule.waiting):
        if len(schedule.waiting) < (plan.catch_up_limit or 1):
            queued = SlotResult(slot=slot, outcome=SlotOutcome.QUEUED, reason=running or "behind queued slots")
            return schedule.evolve(waiting=(*schedule.waiting, slot)), [queued]
        reason = f"{len(schedule.waiting)} slots are queued already, which is catch_up_limit"
        return schedule, [SlotResult(slot=slot, outcome=SlotOutcome.SKIPPED, reason=reason)]
    if plan.overlap is Overlap.SKIP and running is not None:
        return schedule, [SlotResult(slot=slot, outcome=SlotOutcome.SKIPPED, reason=running)]
    return schedule.evolve(starting=Starting(slot=slot)), []
