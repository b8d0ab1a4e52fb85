"""Schedules as deployments and operators change them.

What the code declares and what an operator set stand apart in the record, so that a deployment takes back nothing that
an operator said. Each change is worked out from the record as it is (`recovery.schedule.changes`) and saved by
compare-and-set; where somebody was first, it is worked out again.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from recovery.engine.actors.actor import Actor
from recovery.engine.lookup import hint
from recovery.engine.operators.auditing import audited, who
from recovery.engine.operators.markers import clear_marker
from recovery.engine.operators.ordering import order, order_details
from recovery.engine.resources import Resources
from recovery.engine.start.occurrences import NO_ARGUMENTS, Keys, instances, look_at, under_way
from recovery.errors import DamagedRecord, InputError, StoreUnavailable
from recovery.limits import NAME
from recovery.records import ProcessState, given
from recovery.records.schedule import DEFAULTS, OperatorWord, Overlap, Plan, Schedule, ScheduledOrders, SlotResult
from recovery.schedule import changes as states
from recovery.schedule import check, plan_names, plan_of

log = logging.getLogger(__name__)

_ARGUMENTS = "schedule_arguments"
SCHEDULE_SETTINGS = tuple(_ARGUMENTS if name == "arguments" else name for name in plan_names())
"""What `@app.process` takes beside the settings of actors and process types."""
MAX_TRIES = 20
"""Times that a change is worked out again since somebody was first: scanners write once per slot."""

Change = Callable[[Schedule, OperatorWord, Any], Schedule]


def declared_plan(process_type: str, said: Mapping[str, Any]) -> Plan | None:
    """The plan that the code of a process type declares; None if it declares none. Raises InputError."""
    if not said or ("schedule" in said and said["schedule"] is None):  # as where a setting says it: not here
        return None
    where = f"process type {process_type}"
    plan = plan_of({"arguments" if name == _ARGUMENTS else name: value for name, value in said.items()}, where)
    check(plan.over(DEFAULTS), where)
    return plan


def arguments_of(plan: Plan) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a process is started with, as its function is called."""
    positional, named = json.loads(plan.over(DEFAULTS).arguments or NO_ARGUMENTS)
    return tuple(positional), named


def declare_schedules(resources: Resources, actors: Mapping[str, Actor[..., Any]], plans: Mapping[str, Plan]) -> None:
    """Save what the code of an application says of when its process types are started, which may be nothing any more,
    and the keys of all their schedules."""
    keys = Keys(actors)
    for process_type in keys.process_types:
        _declare(resources, process_type, plans.get(process_type))
    for name in resources.store.schedules.all():
        _tell_key(resources, name, keys)


def _tell_key(resources: Resources, name: str, keys: Keys) -> None:
    """Save the key that a schedule's processes have by the code as it is now."""
    for _ in range(MAX_TRIES):
        schedule = resources.store.schedules.all().get(name)
        found = None if schedule is None else keys.of(schedule)
        if schedule is None or found is None or found == schedule.keyed:
            return
        if resources.store.schedules.save(states.keyed(schedule, found, resources.store.now())):
            return
    raise _too_busy(name)


def _declare(resources: Resources, process_type: str, plan: Plan | None) -> None:
    schedules = resources.store.schedules
    for _ in range(MAX_TRIES):
        try:
            before = schedules.get(process_type)
        except DamagedRecord as damage:  # no reason for a worker not to work
            log.error(
                "the schedule of process type %s is not taken from its code: %s; correct it in MongoDB, or "
                "`recovery schedule remove %s` and start a worker",
                process_type, damage, process_type,
            )  # fmt: skip
            return
        if before is not None and before.type != process_type:
            if plan is not None:
                log.error(
                    "the schedule of process type %s is not taken from its code: an operator added one of its name for "
                    "%s; `recovery schedule remove %s`",
                    process_type, before.type, process_type,
                )  # fmt: skip
            return
        try:
            after = states.declared(before, process_type, plan, resources.store.now())
        except InputError as error:  # no reason for a worker not to work
            log.error("schedule %s stays as it was: the code's new words and an operator's: %s", process_type, error)
            return
        if after is None or after == before:
            return
        if schedules.insert(after) if before is None else schedules.save(after):
            return
    raise _too_busy(process_type)


class Schedules:
    """Schedules, as operators change them. Each change has a reason and is kept in the record."""

    def __init__(self, resources: Resources, by: str | None = None) -> None:
        self._resources, self._kept = resources, resources.store.schedules
        self._by = by or who()

    def get(self, name: str) -> Schedule:
        """The schedule of this name. Raises InputError."""
        try:
            found = self._kept.get(given.text(name, "name of the schedule"))
        except DamagedRecord as damage:
            raise InputError(
                f"{damage}. Correct it in MongoDB's collection `schedules`, or `recovery schedule remove {name}` and "
                "declare or add it again"
            ) from None
        if found is None:
            there = hint(
                name, sorted(self._kept.all()), "there is none yet: `recovery schedule add`, or schedule=… in code"
            )
            raise InputError(f"no schedule is named {given.shown(name)}; {there}")
        return found

    def add(self, name: str, process_type: str, said: Mapping[str, Any], reason: str) -> Schedule:
        """Start this process type at these times. Raises InputError."""
        details: dict[str, Any] = {"type": process_type, "settings": dict(said)}
        with audited(self._resources, "schedule add", name, reason, by=self._by, **details):
            known = self._known(name)
            if process_type not in known:
                there = hint(process_type, sorted(known), "none is known yet: a worker tells when it starts")
                raise InputError(f"no process type is named {given.shown(process_type)}; {there}")
            if name in known and name != process_type:
                raise _others_name(name)
            plan, word = plan_of(said, f"schedule {name}"), self._word("add", reason)
            return self._added(states.added(name, process_type, plan, word, word.at))

    def add_ordering(self, name: str, orders: ScheduledOrders, said: Mapping[str, Any]) -> Schedule:
        """Order this operation at these times. Raises InputError."""
        details = {"kind": orders.kind, **order_details(orders, saved=orders.saved), "settings": dict(said)}
        with audited(self._resources, "schedule operation", name, orders.purpose, by=self._by, **details):
            if name in self._known(name):
                raise _others_name(name)
            plan, word = plan_of(said, f"schedule {name}"), self._word(f"order {orders.kind}", orders.purpose)
            return self._added(states.ordering(name, orders, plan, word, word.at))

    def _known(self, name: str) -> Iterable[str]:
        """The process types, if this can be the name of a schedule."""
        if not re.fullmatch(NAME, given.text(name, "name of the schedule")):
            raise InputError(f"schedule {given.shown(name)}: use letters, digits, '_', '.', '-', at most 100")
        return self._resources.store.process_types.stored()

    def _added(self, schedule: Schedule) -> Schedule:
        if not self._kept.insert(schedule):
            raise InputError(f"schedule {schedule.id}: there is one of this name; `recovery schedule set` changes it")
        return self.get(schedule.id)

    def set(self, name: str, said: Mapping[str, Any], reason: str) -> Schedule:
        """Set these settings over what the code says."""

        def change(schedule: Schedule, word: OperatorWord, now: Any) -> Schedule:
            # A moment without a time zone is of the schedule's.
            zone = {"time_zone": schedule.plan.time_zone} if "time_zone" not in said else {}
            plan = plan_of({**zone, **said}, f"schedule {name}")
            plan = plan if "time_zone" in said else plan.evolve(time_zone=None)
            return states.overridden(schedule, plan, word, now)

        return self._change(name, f"set {' '.join(sorted(said))}", reason, change, said)

    def unset(self, name: str, settings: Iterable[str], reason: str) -> Schedule:
        """Let the code, or the default, decide these settings again."""
        names = tuple(settings)
        for one in names:
            if one not in plan_names():
                raise InputError(
                    f"schedule {name}: no setting is named {given.shown(one)}; {hint(one, plan_names(), '')}"
                )
        return self._change(
            name,
            f"unset {' '.join(names)}",
            reason,
            lambda schedule, word, now: states.unset(schedule, names, word, now),
        )

    def pause(self, name: str, reason: str) -> Schedule:
        """Start nothing more until it is resumed."""
        if not reason:
            raise InputError(f"schedule {name}: pausing takes a --reason, which is shown with it")
        return self._change(name, "pause", reason, states.paused)

    def resume(self, name: str, reason: str) -> Schedule:
        """Start instances again, from the next slot on."""
        return self._change(name, "resume", reason, states.resumed)

    def enable(self, name: str, reason: str) -> Schedule:
        """Start instances again after a non-recoverable failure, from the next slot on; its marker is cleared."""
        if not reason:
            raise InputError(f"schedule {name}: enabling takes a --reason, which is kept")
        schedule = self.get(name)
        marker = schedule.disabled.marker if schedule.disabled is not None else None
        if marker is not None and self._resources.store.markers.find(marker) is not None:
            # First: cut off after it, the schedule is enabled by whoever looks whether the marker stands.
            clear_marker(self._resources, marker, reason, self._by)
        return self._change(name, "enable", reason, states.enabled)

    def remove(self, name: str, reason: str = "") -> Schedule | None:
        """Forget a schedule that an operator added, or one that can't be read; what it started goes on. Return it, or
        None if it could not be read."""
        with audited(self._resources, "schedule remove", name, reason, by=self._by):
            return self._remove(name)

    def _remove(self, name: str) -> Schedule | None:
        if self._kept.remove_damaged(given.text(name, "name of the schedule")):
            return None
        for _ in range(MAX_TRIES):
            schedule = self.get(name)
            if schedule.code is not None:
                raise InputError(
                    f"schedule {name} is declared by the code of {schedule.type}, and would be back when a worker "
                    f"starts; `recovery schedule pause {name} --reason …`"
                )
            if self._kept.remove(schedule):
                return schedule
        raise _too_busy(name)

    def trigger(self, name: str, reason: str, *, force: bool = False) -> SlotResult:
        """Start an instance now. Raises InputError where the previous one still runs and the overlap policy, unless it
        is `force`d, does not allow two at once; or where it is refused."""

        def change(schedule: Schedule, word: OperatorWord, now: Any) -> Schedule:
            if schedule.orders is not None and (operation := under_way(self._resources, schedule)) is not None:
                raise InputError(f"schedule {name}: operation {operation} is under way; there is one at a time")
            overlap, there = schedule.plan.overlap, instances(self._resources, schedule)
            running = next((one for one in there if one.state is ProcessState.RUNNING), None)
            if running is not None and overlap is not Overlap.ALLOW and not force:
                raise InputError(
                    f"schedule {name}: process {running.id} still runs, and overlap={overlap} allows one at a time; "
                    "--force starts another one"
                )
            return states.triggered(schedule, word, now)

        before = self.get(name)
        if before.keyed is None and before.orders is None:
            raise InputError(
                f"schedule {name}: no worker that has {before.type} has looked at it yet; start one, or ask again"
            )
        schedule = self._change(name, "trigger", reason, change)
        starting = schedule.starting
        assert starting is not None, "that is what was written"
        result = look_at(self._resources, schedule, order=order)
        if result is None:  # a scanner was first
            settled = self.get(name).recent
            result = next((one for one in reversed(settled) if one.slot == starting.slot), None)
        if result is None:
            raise StoreUnavailable(f"schedule {name}: an instance is being started; `recovery schedule show` tells")
        if result.process is None and result.operation is None:
            raise InputError(f"schedule {name}: not started: {result.reason}")
        return result

    def _change(
        self, name: str, what: str, reason: str, change: Change, said: Mapping[str, Any] | None = None
    ) -> Schedule:
        with audited(self._resources, f"schedule {what}", name, reason, by=self._by, settings=dict(said or {})):
            for _ in range(MAX_TRIES):
                before, word = self.get(name), self._word(what, reason)
                after = change(before, word, word.at)
                if self._kept.save(after):
                    return after.evolve(version=after.version + 1)
            raise _too_busy(name)

    def _word(self, what: str, reason: str) -> OperatorWord:
        text = given.text(reason, "reason") if reason else ""
        return OperatorWord(what=what, by=self._by, reason=text, at=self._resources.store.now())


def _others_name(name: str) -> InputError:
    return InputError(f"schedule {name}: is the name of another process type, whose own schedule has it; take another")


def _too_busy(name: str) -> StoreUnavailable:
    return StoreUnavailable(f"schedule {name}: others change it all the time; nothing was changed, try again")
