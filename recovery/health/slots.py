"""The check of the slots: does an attempt keep one that it has lost its task for, and does each of them run tasks?

Such a slot is freed by its worker's parent (`worker.slots.hung_slots`), so what hangs now is there for a
`worker_timeout` at most. That it was freed is told for a while, since what hung will hang again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from recovery.engine import Resources
from recovery.health.model import Cause, Check, ok, warning
from recovery.records import FailingSlots, FreedSlots, Worker
from recovery.wording import count, printable, show_age

RECENT = 600.0
"""Seconds that a freed slot is told of: ten attempts of the default `worker_timeout`."""
SHOWN = 5


def slots(resources: Resources) -> Check:
    """No slot hangs, none was freed of an attempt that hung not long ago, and none claims tasks and runs none."""
    store = resources.store
    return judge_slots(store.overview.workers_alive(), store.hung.freed(), store.now())


def judge_slots(workers: Sequence[Worker], freed: Sequence[FreedSlots], now: datetime) -> Check:
    """What the workers that live tell of their slots, and what is kept of those that were freed."""
    if failing := {worker.name: worker.failing for worker in workers if worker.failing is not None}:
        return _judge_failing(failing)
    hung = [
        f"{slot.actor} {slot.task} on {worker.name} for {_ago(slot.since, now)}"
        for worker in workers
        for slot in worker.hung
    ]
    recent = [
        f"{one.id} {one.slots:,} in all, the last {_ago(one.at, now)} ago on {one.worker} ({one.task})"
        for one in freed
        if abs((now - one.at).total_seconds()) < RECENT  # one still to come would be told of for good
    ]
    found = [f"{len(hung)} of workers that live hang: {_shown(hung)}"] if hung else []
    found += [f"freed of what hung: {_shown(recent)}"] if recent else []
    if not found:
        return ok("slots", "none hangs")
    advice = "each is freed by itself; find out what these functions wait for, and give that a time-out"
    return warning("slots", Cause.SLOTS_HANG, "; ".join(found), f"{advice} (docs/actors.md, 'A function that hangs')")


def _judge_failing(failing: Mapping[str, FailingSlots]) -> Check:
    told = [
        f"{name}: {count(slots.in_a_row, 'slot')} in a row, the last for {printable(slots.reason)}"
        for name, slots in failing.items()
    ]
    advice = "read the logs of these workers and see what their machines lack; until then they take little or nothing"
    return warning("slots", Cause.SLOTS_FAIL, f"claim tasks and can run none on {_shown(told)}", advice)


def _ago(moment: datetime, now: datetime) -> str:
    return show_age(max(0.0, (now - moment).total_seconds()))


def _shown(found: Sequence[str]) -> str:
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
