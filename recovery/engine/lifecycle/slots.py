"""One look at a schedule: decide, write it down, start, settle.

    decide     the end of the previous instance and what is due (`recovery.schedule`), saved by compare-and-set: of any
               number who look at once one goes on
    start      the slot that is `starting`, under a custom id of its own: whoever does so again gets the same process
    settle     what came of it, saved by compare-and-set

Cut off after any of them, the schedule's deadline is past, and the next look goes on from what stands there.

Metrics: recovery_schedule_slots, by process type and outcome.
"""

from __future__ import annotations

import logging
from datetime import datetime

from recovery import metrics
from recovery.engine.lifecycle.start import start
from recovery.engine.resources import Resources
from recovery.errors import InputError
from recovery.records import Process
from recovery.records.schedule import Schedule, SlotOutcome, SlotResult, Starting
from recovery.schedule import decide, settle

log = logging.getLogger(__name__)


def look_at(resources: Resources, schedule: Schedule) -> SlotResult | None:
    """Do what is to be done about a schedule now, one slot of it: what became of the slot that was started. None: no
    slot was to be started, or somebody else saw to it."""
    if schedule.starting is None:
        decided = decide(schedule, last_instance(resources, schedule), resources.store.now())
        if not resources.store.schedules.save(decided.schedule):
            return None
        if decided.schedule.disabled is not None and schedule.disabled is None:
            log.error("schedule %s is disabled: %s", schedule.id, decided.schedule.disabled.reason)
        _count(schedule, *decided.results)
        if decided.schedule.starting is None:
            return None
        schedule = decided.schedule.evolve(version=schedule.version + 1)
    assert schedule.starting is not None
    result = _start(resources, schedule, schedule.starting)
    if not resources.store.schedules.save(settle(schedule, result, resources.store.now())):
        return None
    _count(schedule, result)
    return result


def last_instance(resources: Resources, schedule: Schedule) -> Process | None:
    """The last process that a schedule started, briefly, as a majority has it; None if there is none."""
    if schedule.last_process is None:
        return None
    return resources.store.processes.get_committed_brief(schedule.last_process)


def instance_id(schedule: Schedule, starting: Starting) -> str:
    """The custom id of a slot's process: whoever starts it again gets the same one."""
    return f"{schedule.id}@{'trigger ' if starting.triggered else ''}{moment_text(starting.slot)}"


def moment_text(moment: datetime) -> str:
    """A moment in UTC, to the second, or to the millisecond where it has some."""
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds").replace("+00:00", "Z")


def _start(resources: Resources, schedule: Schedule, starting: Starting) -> SlotResult:
    stored = resources.store.process_types.get(schedule.type)
    slot, triggered = starting.slot, starting.triggered
    if stored is None:
        reason = f"no process type is named {schedule.type!r}: no worker that has it was ever started here"
        return SlotResult(slot=slot, outcome=SlotOutcome.REFUSED, reason=reason, triggered=triggered)
    kind, plan = stored.effective, schedule.plan
    try:
        process = start(
            resources,
            schedule.type,
            plan.arguments or "[[],{}]",
            custom_id=instance_id(schedule, starting),
            idle_timeout=kind.idle_timeout,
            process_timeout=kind.process_timeout,
            any_arguments=True,  # an operator may have changed them since it was started
        )
    except InputError as error:
        log.warning("schedule %s, slot %s: not started: %s", schedule.id, moment_text(slot), error)
        return SlotResult(slot=slot, outcome=SlotOutcome.REFUSED, reason=str(error)[:500], triggered=triggered)
    return SlotResult(slot=slot, outcome=SlotOutcome.STARTED, process=process, triggered=triggered)


def _count(schedule: Schedule, *results: SlotResult) -> None:
    for one in results:
        metrics.SCHEDULE_SLOTS.labels(schedule.type, one.outcome.value).inc()
