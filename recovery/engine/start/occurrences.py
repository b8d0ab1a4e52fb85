"""Handles one occurrence of a schedule: decide, save the decision, start, settle.

    decide     the ends of earlier instances, and what is due (`recovery.schedule`); saved by compare-and-set, so only
               one of several concurrent workers continues
    start      the occurrence that is `starting`, under its own custom id, so that a repeated start returns the same
               process; or order its operation, of which each occurrence has one
    settle     the result, saved by compare-and-set

A worker may pause before the start while others start this occurrence, and it ends and is removed. The worker then
starts another process, but nothing of it runs, because the schedule does not know it (`fencing`).

If this is cut off after any step, the schedule is overdue, and the next look continues from the saved state.

Metrics: recovery_schedule_slots, by process type and outcome.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from recovery import metrics
from recovery.engine.actors.actor import Actor
from recovery.engine.end.breaking import mark, write_marker
from recovery.engine.resources import Resources
from recovery.engine.start.keys import key_of
from recovery.engine.start.start import Starts
from recovery.errors import InputError, ServerUnavailable, StartRefused, StoreError, StoreUnavailable
from recovery.records import Process, ProcessState, marker_name
from recovery.records.schedule import Keyed, OperatorWord, Schedule, SlotOutcome, SlotResult, Starting
from recovery.schedule import Decided, Instance, decide, enabled, instance_id, is_call, moment_text, settle
from recovery.schedule.across import is_set
from recovery.schedule.changes import with_word
from recovery.schedule.judge import with_deadline

log = logging.getLogger(__name__)

NO_ARGUMENTS = "[[],{}]"
"""The JSON text of a call without arguments."""

Order = Callable[[Resources, Schedule, Starting], SlotResult]
"""Orders the operation of an occurrence. Repeated calls order it once."""


class Keys:
    """The keys of an application's process types, computed by their key functions."""

    def __init__(self, actors: Mapping[str, Actor[..., Any]]) -> None:
        self._actors = actors

    @property
    def process_types(self) -> list[str]:
        """Return the process types whose keys this application can compute."""
        return [name for name, actor in self._actors.items() if actor.process_type is not None]

    def of(self, schedule: Schedule) -> Keyed | None:
        """Return the key of a schedule's processes, or why the arguments are invalid; None if its type is another
        application's."""
        actor, text = self._actors.get(schedule.type), _arguments(schedule)
        if actor is None or actor.process_type is None:
            return None
        if not is_call(text):
            return Keyed(arguments=text, error="its arguments are not the JSON of `[positional, named]`")
        positional, named = json.loads(text)
        try:
            # A process with invalid arguments would break, and its marker would stop all others of its type.
            actor.check_call(tuple(positional), named)
            if actor.key is None:
                return Keyed(arguments=text)
            return Keyed(arguments=text, key=key_of(actor.name, actor.key, actor.function, positional, named))
        except InputError as error:
            return Keyed(arguments=text, error=str(error)[:500])


def look_at(
    resources: Resources, schedule: Schedule, keys: Keys | None = None, order: Order | None = None
) -> SlotResult | None:
    """Do what is due for one occurrence of a schedule, and return the result.

    Args:
        resources: Connections.
        schedule: The schedule as it was read.
        keys: Computes the key if it is not known yet.
        order: Orders operations; required for a schedule that orders operations.

    Returns:
        The result of the occurrence that was started. None if none was due, if another worker was first, or if the key
        is not known and `keys` can't compute it.
    """
    keyed = _keyed(resources, schedule, keys)
    if keyed is None:
        return None
    schedule = keyed
    if schedule.starting is None:
        decided = _decided(resources, schedule)
        if not resources.store.schedules.save(decided.schedule):
            return None
        if decided.schedule.disabled is not None and schedule.disabled is None:
            log.error("schedule %s is disabled: %s", schedule.id, decided.schedule.disabled.reason)
        _count(schedule, *decided.results)
        if decided.schedule.starting is None:
            return None
        schedule = decided.schedule.evolve(version=schedule.version + 1)
    assert schedule.starting is not None
    if schedule.orders is not None:
        assert order is not None, "the caller can order operations"
        result = order(resources, schedule, schedule.starting)
    else:
        result = _start(resources, schedule, schedule.starting)
    if not resources.store.schedules.save(settle(schedule, result, resources.store.now())):
        return None
    _count(schedule, result)
    return result


def _keyed(resources: Resources, schedule: Schedule, keys: Keys | None) -> Schedule | None:
    """Return the schedule with the key for its arguments, or None if the key is not known and `keys` can't compute
    it."""
    if schedule.orders is not None:  # an operation has no key
        return schedule
    if schedule.keyed is not None:
        if schedule.keyed.arguments == _arguments(schedule):
            return schedule
        # Another program has changed the arguments. Only an application that has the type can compute the new key.
        schedule = schedule.evolve(keyed=None)
        if keys is None or keys.of(schedule) is None:
            resources.store.schedules.save(schedule)
            return None
    computed = keys.of(schedule) if keys is not None else None
    return None if computed is None else schedule.evolve(keyed=computed)


def _decided(resources: Resources, schedule: Schedule) -> Decided:
    """Return what is due. If a failure only now turns out to be non-recoverable, write its marker first."""
    now = resources.store.now()
    if schedule.disabled is not None:
        return Decided(_while_disabled(resources, schedule, now))
    if schedule.orders is not None:
        return decide(schedule, [], now, under_way(resources, schedule))
    processes = instances(resources, schedule)
    decided = decide(
        schedule, [Instance(process, _marker_of(resources, schedule, process)) for process in processes], now
    )
    if decided.schedule.disabled is not None:
        # Before the schedule is disabled. If cut off in between, the next look decides again and finds the marker.
        write_marker(
            resources, next(process for process in processes if process.id == decided.schedule.disabled.process)
        )
    return decided


def _marker_of(resources: Resources, schedule: Schedule, instance: Process) -> str | None:
    """Return the name of the marker that an instance left, if the end of the instance is not accounted for yet."""
    if instance.state is not ProcessState.BROKEN or instance.id == schedule.accounted:
        return None
    if instance.marker_due:
        mark(resources, [instance.id])
    marker = resources.store.markers.find(marker_name(instance.type, instance.key))
    return marker.id if marker is not None and marker.process == instance.id else None


def _while_disabled(resources: Resources, schedule: Schedule, now: datetime) -> Schedule:
    """Return a disabled schedule with its next deadline, or enabled if its marker was cleared."""
    assert schedule.disabled is not None, "the caller has checked this"
    name = schedule.disabled.marker
    if name is None or resources.store.markers.find(name) is not None:
        return with_deadline(schedule, now)
    record = resources.store.markers.get(name)
    last = record.clearings[-1] if record is not None and record.clearings else None
    reason = f"the marker {name} was cleared{f': {last.reason}' if last else ''}"
    log.warning("schedule %s is enabled, since %s", schedule.id, reason)
    word = OperatorWord(what="enable", by=last.by if last else "recovery", reason=reason[:500], at=now)
    return enabled(with_word(schedule, word), now)


def instances(resources: Resources, schedule: Schedule) -> list[Process]:
    """Return the last process that a schedule started, and earlier ones whose ends were not accounted for when it
    started.

    The records are brief and read with majority. Processes that are gone are left out.
    """
    processes, last_id = resources.store.processes, schedule.last_process
    earlier = list(processes.committed_briefs(schedule.beside).values()) if schedule.beside else []
    last = processes.get_committed_brief(last_id) if last_id is not None else None
    return earlier if last is None else [*earlier, last]


def under_way(resources: Resources, schedule: Schedule) -> int | None:
    """Return the last operation that a schedule ordered, if it is not over yet."""
    last = schedule.last_operation
    return last if last is not None and resources.store.operations.is_under_way(last) else None


def _start(resources: Resources, schedule: Schedule, starting: Starting) -> SlotResult:
    stored = resources.store.process_types.get(schedule.type)
    slot, triggered = starting.slot, starting.triggered
    if stored is None:
        reason = f"no process type is named {schedule.type!r}: no worker that has it was ever started here"
        return SlotResult(slot=slot, outcome=SlotOutcome.REFUSED, reason=reason, triggered=triggered)
    keyed = schedule.keyed
    assert keyed is not None, "`look_at` has computed the key"
    try:
        if keyed.error is not None:
            raise InputError(keyed.error)
        # An operator may have changed its arguments since it was started.
        starts = Starts(resources, stored.effective, any_arguments=True)
        wanted = starts.process(
            _arguments(schedule),
            version=_version(resources, schedule.type),
            custom_id=instance_id(schedule, starting),
            key=keyed.key,
            scheduled_by=schedule.id,
            retried_by_schedule=is_set(schedule.plan) or None,
        )
        started = starts.start(wanted)
    except StoreError:
        raise
    except ServerUnavailable as error:  # it may have been started: the next look repeats the start
        raise StoreUnavailable(str(error)) from error
    except InputError as error:
        log.warning("schedule %s, occurrence %s: not started: %s", schedule.id, moment_text(slot), error)
        reason = f"{error.reason}: {error}" if isinstance(error, StartRefused) else str(error)
        return SlotResult(slot=slot, outcome=SlotOutcome.REFUSED, reason=reason[:500], triggered=triggered)
    return SlotResult(slot=slot, outcome=SlotOutcome.STARTED, process=started.id, triggered=triggered)


def _version(resources: Resources, process_type: str) -> str | None:
    """Return the version of the application that starts an occurrence: the newest one that serves its type.

    If no worker of the type lives, it is this worker's version, unless this worker may belong to another application.
    """
    newest = resources.store.workers.newest_version(process_type)
    return newest if newest or resources.settings.shared_names else resources.recorded_version


def _arguments(schedule: Schedule) -> str:
    return schedule.plan.arguments or NO_ARGUMENTS


def _count(schedule: Schedule, *results: SlotResult) -> None:
    for result in results:
        metrics.SCHEDULE_SLOTS.labels(schedule.type, result.outcome.value).inc()
