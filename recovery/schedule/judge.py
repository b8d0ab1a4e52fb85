"""What is to be done about a schedule now: one slot at a time, as one change of its record.

`decide` looks at the ends of the instances before, then at what is due, and gives the schedule as it is to be. A slot
that is to be started is `starting` in it: written down before anything is started, so that everybody who looks at it
from then on does the same; `settle` says what came of it. Both take the time from whoever calls, which is the
database's.

A clock that jumps back makes nothing due twice: slots only move on. One that had jumped far ahead and comes back would
leave the next slot far off, and so would another program that writes to the record. Such a slot is taken back to where
the clock is, and what was started then has its custom id.
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
"""So late is a slot on time where nothing is to be caught up: a failover, a deployment, a busy scanner."""
MAX_AHEAD = timedelta(hours=1)
"""Nothing is looked at later than this, so a deadline that is further off was written by a clock that was wrong."""
QUEUE_LOOK = timedelta(seconds=5)
"""Between two looks at whether the instance has ended that others wait for: one read each."""
MARKER_LOOK = timedelta(seconds=10)
"""Between two looks at whether the marker was cleared that a schedule is disabled by: one read each."""
BESIDE = 100
"""Instances at a time whose ends are looked at, where several may run: of the oldest above that nothing is learned."""
KEPT = 20
"""Slots of which is kept what became of them: as many as a terminal shows."""
_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Instance:
    """A process of a schedule whose end was not looked at yet, as a majority has it."""

    process: Process
    marker: str | None = None
    """The name of the marker that it left, if it did."""

    @property
    def runs(self) -> bool:
        return self.process.state is ProcessState.RUNNING


@dataclass(frozen=True, slots=True)
class Decided:
    """A schedule as it is to be, and what is new in it."""

    schedule: Schedule
    results: tuple[SlotResult, ...] = field(default=())
    """Slots that were decided on, and are not to be started."""


def due_at(schedule: Schedule, slot: datetime) -> datetime:
    """When a slot is to be started: later than its time by its share of the jitter, the same whoever asks."""
    jitter = max(0.0, min(schedule.plan.jitter or 0.0, (_LAST - slot).total_seconds()))
    digest = blake2b(f"{schedule.id}\0{slot.isoformat()}".encode(), digest_size=4).digest()
    return slot + timedelta(seconds=round(jitter * int.from_bytes(digest, "big") / 2**32, 3))


def decide(schedule: Schedule, instances: Sequence[Instance], now: datetime, operation: int | None = None) -> Decided:
    """What is to be done now. `instances` are the last one and those that ran beside it, but those that are gone;
    `operation` is the last that it ordered, if that is under way."""
    schedule = _accounted(schedule, instances, now)
    if schedule.starting is not None or schedule.paused is not None or schedule.disabled is not None:
        return Decided(with_deadline(schedule, now))
    running = next((f"process {one.process.id} still runs" for one in instances if one.runs), None)
    if operation is not None:
        running = f"operation {operation} is under way"
    schedule = _taken_back(schedule, now)
    schedule, results = _slots(schedule, running, now)
    if schedule.starting is None and schedule.waiting and running is None:
        first, *others = schedule.waiting
        schedule = schedule.evolve(starting=Starting(slot=first), waiting=tuple(others))
    return Decided(with_deadline(noted(schedule, *results), now), tuple(results))


def settle(schedule: Schedule, result: SlotResult, now: datetime) -> Schedule:
    """The schedule once it is known what became of the slot that was to be started."""
    schedule = schedule.evolve(starting=None)
    if result.outcome is SlotOutcome.STARTED:
        last = schedule.last_process
        if last is not None and last not in (schedule.accounted, result.process):
            schedule = schedule.evolve(beside=(*schedule.beside, last)[-BESIDE:])
        schedule = schedule.evolve(last_slot=result.slot, last_process=result.process, last_operation=result.operation)
    return with_deadline(noted(schedule, result), now)


def enabled(schedule: Schedule, now: datetime) -> Schedule:
    """No longer disabled, from the next slot on; its failures count anew."""
    return from_now(schedule.evolve(disabled=None, failing=None, beside=()), now)


def from_now(schedule: Schedule, now: datetime) -> Schedule:
    """With the first slot after now in the place of one that has passed. An interval keeps its places."""
    plan, slot = schedule.plan, schedule.next_slot
    if slot is not None and slot <= now:
        slot = first_slot(plan.evolve(starts_at=max(slot, plan.starts_at) if plan.starts_at else slot), now)
    return with_deadline(schedule.evolve(next_slot=slot), now)


def is_next_slot_impossible(schedule: Schedule, now: datetime) -> bool:
    """Return whether the next slot is later than the plan can have it now."""
    slot, soon = schedule.next_slot, now + MAX_AHEAD
    if slot is None or slot <= soon:
        return False
    last = max((one.slot for one in schedule.recent if not one.triggered), default=now)
    again = first_slot(schedule.plan, now)
    return again is None or again + MAX_AHEAD < slot or (last > soon and again < slot)


def noted(schedule: Schedule, *results: SlotResult) -> Schedule:
    """With these results, and as many of those before as are kept."""
    return schedule.evolve(recent=(*schedule.recent, *results)[-KEPT:]) if results else schedule


def with_deadline(schedule: Schedule, now: datetime) -> Schedule:
    """With the time at which it is to be looked at next; without one where it is at rest."""
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


def _accounted(schedule: Schedule, instances: Sequence[Instance], now: datetime) -> Schedule:
    """With the ends looked at that have come, in the order in which they came."""
    for one in sorted(instances, key=lambda one: one.process.ended_at or now):
        if (found := account(schedule, one.process, now, one.marker)) is None:
            continue
        schedule = schedule.evolve(failing=found.failing, disabled=schedule.disabled or found.disabled)
        if one.process.id == schedule.last_process:
            schedule = schedule.evolve(accounted=one.process.id)
    running = {one.process.id for one in instances if one.runs}
    left = tuple(process for process in schedule.beside if process in running)
    return schedule if left == schedule.beside else schedule.evolve(beside=left)


def _taken_back(schedule: Schedule, now: datetime) -> Schedule:
    """Return the schedule with the first slot after now, if its next slot is later than the plan can have it: a clock
    was wrong when it was written, or another program wrote it."""
    if not is_next_slot_impossible(schedule, now):
        return schedule
    return schedule.evolve(next_slot=first_slot(schedule.plan, now))


def _slots(schedule: Schedule, running: str | None, now: datetime) -> tuple[Schedule, list[SlotResult]]:
    """With what is due decided on, as far as the first slot that is started; `running` says that the previous
    instance runs, if it does."""
    plan, first = schedule.plan, schedule.next_slot
    grid = grid_of(plan)
    past_end = first is not None and plan.ends_at is not None and first > plan.ends_at
    if grid is None or past_end:  # nobody says when it is due, or that time is over: it is at rest
        return schedule.evolve(next_slot=None), []
    if first is None or due_at(schedule, first) > now:
        return schedule, []
    until = now if plan.ends_at is None else min(now, plan.ends_at)
    keep = (plan.catch_up_limit or 1) if plan.catch_up is CatchUp.ALL else 1
    slots, count = grid.latest(first, until, keep + 1)
    if due_at(schedule, slots[-1]) > now:  # of those that have come only the last may not be due yet, for its jitter
        slots, count = slots[:-1], count - 1
    slots = slots[-keep:]
    results = []
    if plan.catch_up is CatchUp.NONE and now - due_at(schedule, slots[-1]) > ON_TIME:
        last, slots, kept = slots[-1], [], 0
    else:
        last, kept = slots[0], len(slots)
    if missed := count - kept:
        results.append(_missed(first, missed, now))
    schedule = schedule.evolve(next_slot=next_slot(plan, last))
    if slots:
        schedule, result = _one(schedule, slots[0], running)
        results += result
    return schedule, results


def _missed(first: datetime, count: int, now: datetime) -> SlotResult:
    least = "at least " if count > MAX_COUNTED else ""
    others = f"and {least}{min(count - 1, MAX_COUNTED):,} after it, " if count > 1 else ""
    reason = f"{others}not caught up when it was looked at, at {now:%Y-%m-%d %H:%M:%S} UTC"
    return SlotResult(slot=first, outcome=SlotOutcome.MISSED, reason=reason)


def _one(schedule: Schedule, slot: datetime, running: str | None) -> tuple[Schedule, list[SlotResult]]:
    plan = schedule.plan
    if plan.overlap is Overlap.QUEUE and (running is not None or schedule.waiting):
        if len(schedule.waiting) < (plan.catch_up_limit or 1):
            queued = SlotResult(slot=slot, outcome=SlotOutcome.QUEUED, reason=running or "behind slots that wait")
            return schedule.evolve(waiting=(*schedule.waiting, slot)), [queued]
        reason = f"{len(schedule.waiting)} slots wait already, which is catch_up_limit"
        return schedule, [SlotResult(slot=slot, outcome=SlotOutcome.SKIPPED, reason=reason)]
    if plan.overlap is Overlap.SKIP and running is not None:
        return schedule, [SlotResult(slot=slot, outcome=SlotOutcome.SKIPPED, reason=running)]
    return schedule.evolve(starting=Starting(slot=slot)), []
