"""One look at a schedule: decide, write it down, start, settle.

    decide     the ends of the instances before and what is due (`recovery.schedule`), saved by compare-and-set: of any
               number who look at once one goes on
    start      the slot that is `starting`, under a custom id of its own: whoever does so again gets the same process;
               or order its operation, of which there is one for each slot
    settle     what came of it, saved by compare-and-set

Whoever stands still before the start, while others start this occurrence, and it ends and is removed, starts another
one: nothing of that is run, since the schedule does not know it (`fencing`).

Cut off after any of them, the schedule's deadline is past, and the next look goes on from what stands there.

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

Order = Callable[[Resources, Schedule, Starting], SlotResult]
"""Orders the operation of a slot, once however often it is called."""


class Keys:
    """The keys of an application's process types, by their functions."""

    def __init__(self, actors: Mapping[str, Actor[..., Any]]) -> None:
        self._actors = actors

    @property
    def process_types(self) -> list[str]:
        """Of which it can tell."""
        return [name for name, actor in self._actors.items() if actor.process_type is not None]

    def of(self, schedule: Schedule) -> Keyed | None:
        """The key of a schedule's processes, or why they can't be called so; None if its type is another
        application's."""
        actor, text = self._actors.get(schedule.type), _arguments(schedule)
        if actor is None or actor.process_type is None:
            return None
        if not is_call(text):
            return Keyed(arguments=text, error="its arguments are not the JSON of `[positional, named]`")
        positional, named = json.loads(text)
        try:
            # A process that is called wrongly would break, and its marker would stop all others of its type.
            actor.check_call(tuple(positional), named)
            if actor.key is None:
                return Keyed(arguments=text)
            return Keyed(arguments=text, key=key_of(actor.name, actor.key, actor.function, positional, named))
        except InputError as error:
            return Keyed(arguments=text, error=str(error)[:500])


def look_at(
    resources: Resources, schedule: Schedule, keys: Keys | None = None, order: Order | None = None
) -> SlotResult | None:
    """Do what is to be done about a schedule now, one slot of it: what became of the slot that was started. None: no
    slot was to be started, or somebody else saw to it; or nobody has told the key yet, and it is not among these.
    `order` is needed for those that order operations."""
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
        assert order is not None, "who looks at such a schedule can order"
        result = order(resources, schedule, schedule.starting)
    else:
        result = _start(resources, schedule, schedule.starting)
    if not resources.store.schedules.save(settle(schedule, result, resources.store.now())):
        return None
    _count(schedule, result)
    return result


def _keyed(resources: Resources, schedule: Schedule, keys: Keys | None) -> Schedule | None:
    """Return the schedule with the key for its arguments. Return None if nobody has told it and it is not among these
    keys."""
    if schedule.orders is not None:  # an operation has no key
        return schedule
    if schedule.keyed is not None:
        if schedule.keyed.arguments == _arguments(schedule):
            return schedule
        # Another program has changed the arguments. Only an application that has the type can tell the key anew.
        schedule = schedule.evolve(keyed=None)
        if keys is None or keys.of(schedule) is None:
            resources.store.schedules.save(schedule)
            return None
    found = keys.of(schedule) if keys is not None else None
    return None if found is None else schedule.evolve(keyed=found)


def _decided(resources: Resources, schedule: Schedule) -> Decided:
    """What is to be done; with the marker written that a failure leaves which is non-recoverable only now."""
    now = resources.store.now()
    if schedule.disabled is not None:
        return Decided(_while_disabled(resources, schedule, now))
    if schedule.orders is not None:
        return decide(schedule, [], now, under_way(resources, schedule))
    there = instances(resources, schedule)
    decided = decide(schedule, [Instance(one, _marker_of(resources, schedule, one)) for one in there], now)
    if decided.schedule.disabled is not None:
        # Before the schedule is disabled: cut off in between, it is decided again, and the marker is there.
        write_marker(resources, next(one for one in there if one.id == decided.schedule.disabled.process))
    return decided


def _marker_of(resources: Resources, schedule: Schedule, instance: Process) -> str | None:
    """The name of the marker that an instance left, if its end was not looked at yet."""
    if instance.state is not ProcessState.BROKEN or instance.id == schedule.accounted:
        return None
    if instance.marker_due:
        mark(resources, [instance.id])
    found = resources.store.markers.find(marker_name(instance.type, instance.key))
    return found.id if found is not None and found.process == instance.id else None


def _while_disabled(resources: Resources, schedule: Schedule, now: datetime) -> Schedule:
    """The schedule as it is to be: enabled once its marker is cleared."""
    assert schedule.disabled is not None, "who asks has seen it"
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
    """The last process that a schedule started, and those whose ends were not looked at before it was; briefly, as a
    majority has them, but those that are gone."""
    processes, last = resources.store.processes, schedule.last_process
    beside = list(processes.committed_briefs(schedule.beside).values()) if schedule.beside else []
    there = processes.get_committed_brief(last) if last is not None else None
    return beside if there is None else [*beside, there]


def under_way(resources: Resources, schedule: Schedule) -> int | None:
    """The last operation that a schedule ordered, if it is still to be carried out."""
    last = schedule.last_operation
    return last if last is not None and resources.store.operations.is_under_way(last) else None


def _start(resources: Resources, schedule: Schedule, starting: Starting) -> SlotResult:
    stored = resources.store.process_types.get(schedule.type)
    slot, triggered = starting.slot, starting.triggered
    if stored is None:
        reason = f"no process type is named {schedule.type!r}: no worker that has it was ever started here"
        return SlotResult(slot=slot, outcome=SlotOutcome.REFUSED, reason=reason, triggered=triggered)
    keyed = schedule.keyed
    assert keyed is not None, "who looks at it has seen to that"
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
    except ServerUnavailable as error:  # it may have been started: whoever looks next does so again
        raise StoreUnavailable(str(error)) from error
    except InputError as error:
        log.warning("schedule %s, slot %s: not started: %s", schedule.id, moment_text(slot), error)
        reason = f"{error.reason}: {error}" if isinstance(error, StartRefused) else str(error)
        return SlotResult(slot=slot, outcome=SlotOutcome.REFUSED, reason=reason[:500], triggered=triggered)
    return SlotResult(slot=slot, outcome=SlotOutcome.STARTED, process=started.id, triggered=triggered)


def _version(resources: Resources, process_type: str) -> str | None:
    """The version of the application that starts an occurrence: the newest that serves its type. If none lives it is
    that of this worker, unless that may be another application's."""
    newest = resources.store.workers.newest_version(process_type)
    return newest if newest or resources.settings.shared_names else resources.recorded_version


def _arguments(schedule: Schedule) -> str:
    return schedule.plan.arguments or NO_ARGUMENTS


def _count(schedule: Schedule, *results: SlotResult) -> None:
    for one in results:
        metrics.SCHEDULE_SLOTS.labels(schedule.type, one.outcome.value).inc()
