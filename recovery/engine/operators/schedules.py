"""Schedules, as deployments and operators change them.

The record keeps the settings that the code declares apart from those that an operator set. So a deployment never takes
back an operator's change. Each change is computed from the record as it is (`recovery.schedule.changes`), and saved by
compare-and-set. If somebody else changed the record first, the change is computed again.
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
"""Settings that `@app.process` accepts in addition to those of actors and process types."""
MAX_TRIES = 20
"""Maximum number of times that a change is computed, if others change the record. A scanner changes it once per
occurrence."""

Change = Callable[[Schedule, OperatorWord, Any], Schedule]


def declared_plan(process_type: str, said: Mapping[str, Any]) -> Plan | None:
    """Return the plan that the code of a process type declares, or None if it declares none. Raises InputError."""
    if not said or ("schedule" in said and said["schedule"] is None):  # `schedule=None` declares none
        return None
    where = f"process type {process_type}"
    plan = plan_of({"arguments" if name == _ARGUMENTS else name: value for name, value in said.items()}, where)
    check(plan.over(DEFAULTS), where)
    return plan


def arguments_of(plan: Plan) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and named arguments with which the plan starts its processes."""
    positional, named = json.loads(plan.over(DEFAULTS).arguments or NO_ARGUMENTS)
    return tuple(positional), named


def declare_schedules(resources: Resources, actors: Mapping[str, Actor[..., Any]], plans: Mapping[str, Plan]) -> None:
    """Save what the code of an application declares about the schedules of its process types, and the keys of all
    schedules. A declaration that was removed from the code is removed from the record, too."""
    keys = Keys(actors)
    for process_type in keys.process_types:
        _declare(resources, process_type, plans.get(process_type))
    for name in resources.store.schedules.all():
        _save_key(resources, name, keys)


def _save_key(resources: Resources, name: str, keys: Keys) -> None:
    """Save the key that the processes of a schedule have, by the present code."""
    for _ in range(MAX_TRIES):
        schedule = resources.store.schedules.all().get(name)
        key = None if schedule is None else keys.of(schedule)
        if schedule is None or key is None or key == schedule.keyed:
            return
        if resources.store.schedules.save(states.keyed(schedule, key, resources.store.now())):
            return
    raise _too_busy(name)


def _declare(resources: Resources, process_type: str, plan: Plan | None) -> None:
    """Save what the code declares about the schedule of one process type. A schedule that cannot be saved is logged,
    because the worker has to start nevertheless."""
    schedules = resources.store.schedules
    for _ in range(MAX_TRIES):
        try:
            before = schedules.get(process_type)
        except DamagedRecord as damage:  # the worker can start nevertheless
            log.error(
                "could not save the schedule that the code of process type %s declares: %s; correct it in MongoDB, or "
                "`recovery schedule remove %s` and start a worker",
                process_type, damage, process_type,
            )  # fmt: skip
            return
        if before is not None and before.type != process_type:
            if plan is not None:
                log.error(
                    "could not save the schedule that the code of process type %s declares: an operator added one with "
                    "its name for %s; `recovery schedule remove %s`",
                    process_type, before.type, process_type,
                )  # fmt: skip
            return
        try:
            after = states.declared(before, process_type, plan, resources.store.now())
        except InputError as error:  # the worker can start nevertheless
            log.error(
                "schedule %s is not changed, because the settings of code and operator conflict: %s",
                process_type,
                error,
            )
            return
        if after is None or after == before:
            return
        if schedules.insert(after) if before is None else schedules.save(after):
            return
    raise _too_busy(process_type)


class Schedules:
    """Schedules, as operators change them. Each change is kept in the schedule's record, with its reason."""

    def __init__(self, resources: Resources, by: str | None = None) -> None:
        self._resources, self._kept = resources, resources.store.schedules
        self._by = by or who()

    def get(self, name: str) -> Schedule:
        """Return the schedule with this name. Raises InputError if there is none, or it cannot be read."""
        try:
            schedule = self._kept.get(given.text(name, "name of the schedule"))
        except DamagedRecord as damage:
            raise InputError(
                f"{damage}. Correct it in MongoDB's collection `schedules`, or run `recovery schedule remove {name}` "
                "and declare or add it again"
            ) from None
        if schedule is None:
            suggestion = hint(
                name, sorted(self._kept.all()), "there is none yet: `recovery schedule add`, or schedule=… in code"
            )
            raise InputError(f"no schedule is named {given.shown(name)}; {suggestion}")
        return schedule

    def add(self, name: str, process_type: str, said: Mapping[str, Any], reason: str) -> Schedule:
        """Add a schedule that starts processes of this type, with the settings `said`. Return it. Raises InputError."""
        details: dict[str, Any] = {"type": process_type, "settings": dict(said)}
        with audited(self._resources, "schedule add", name, reason, by=self._by, **details):
            known = self._known(name)
            if process_type not in known:
                suggestion = hint(
                    process_type, sorted(known), "none is known yet: workers report theirs when they start"
                )
                raise InputError(f"no process type is named {given.shown(process_type)}; {suggestion}")
            if name in known and name != process_type:
                raise _name_of_other_type(name)
            plan, word = plan_of(said, f"schedule {name}"), self._word("add", reason)
            return self._added(states.added(name, process_type, plan, word, word.at))

    def add_ordering(self, name: str, orders: ScheduledOrders, said: Mapping[str, Any]) -> Schedule:
        """Add a schedule that orders this operation, with the settings `said`. Return it. Raises InputError."""
        details = {"kind": orders.kind, **order_details(orders, saved=orders.saved), "settings": dict(said)}
        with audited(self._resources, "schedule operation", name, orders.purpose, by=self._by, **details):
            if name in self._known(name):
                raise _name_of_other_type(name)
            plan, word = plan_of(said, f"schedule {name}"), self._word(f"order {orders.kind}", orders.purpose)
            return self._added(states.ordering(name, orders, plan, word, word.at))

    def _known(self, name: str) -> Iterable[str]:
        """Return the known process types. Raises InputError if a schedule cannot have this name."""
        if not re.fullmatch(NAME, given.text(name, "name of the schedule")):
            raise InputError(f"schedule {given.shown(name)}: use letters, digits, '_', '.', '-', at most 100")
        return self._resources.store.process_types.stored()

    def _added(self, schedule: Schedule) -> Schedule:
        if not self._kept.insert(schedule):
            raise InputError(f"schedule {schedule.id}: there is one of this name; `recovery schedule set` changes it")
        return self.get(schedule.id)

    def set(self, name: str, said: Mapping[str, Any], reason: str) -> Schedule:
        """Set these settings over those of the code, and return the changed schedule. Raises InputError."""

        def change(schedule: Schedule, word: OperatorWord, now: Any) -> Schedule:
            # A time without a time zone is in that of the schedule.
            zone = {"time_zone": schedule.plan.time_zone} if "time_zone" not in said else {}
            plan = plan_of({**zone, **said}, f"schedule {name}")
            plan = plan if "time_zone" in said else plan.evolve(time_zone=None)
            return states.overridden(schedule, plan, word, now)

        return self._change(name, f"set {' '.join(sorted(said))}", reason, change, said)

    def unset(self, name: str, settings: Iterable[str], reason: str) -> Schedule:
        """Make the values of the code, or the defaults, hold again for these settings. Return the changed schedule.
        Raises InputError."""
        names = tuple(settings)
        for setting in names:
            if setting not in plan_names():
                raise InputError(
                    f"schedule {name}: no setting is named {given.shown(setting)}; {hint(setting, plan_names(), '')}"
                )
        return self._change(
            name,
            f"unset {' '.join(names)}",
            reason,
            lambda schedule, word, now: states.unset(schedule, names, word, now),
        )

    def pause(self, name: str, reason: str) -> Schedule:
        """Pause a schedule: it starts nothing until it is resumed. Return the changed schedule. Raises InputError."""
        if not reason:
            raise InputError(f"schedule {name}: pausing takes a --reason, which is shown with it")
        return self._change(name, "pause", reason, states.paused)

    def resume(self, name: str, reason: str) -> Schedule:
        """Resume a schedule, from its next occurrence on. Return the changed schedule. Raises InputError."""
        return self._change(name, "resume", reason, states.resumed)

    def enable(self, name: str, reason: str) -> Schedule:
        """Enable a schedule again after a non-recoverable failure, from its next occurrence on, and clear the marker of
        the failure. Return the changed schedule. Raises InputError."""
        if not reason:
            raise InputError(f"schedule {name}: enabling takes a --reason, which is kept")
        schedule = self.get(name)
        marker = schedule.disabled.marker if schedule.disabled is not None else None
        if marker is not None and self._resources.store.markers.find(marker) is not None:
            # The marker comes first. If this is cut off after it, a scanner finds no marker, and enables the schedule.
            clear_marker(self._resources, marker, reason, self._by)
        return self._change(name, "enable", reason, states.enabled)

    def remove(self, name: str, reason: str = "") -> Schedule | None:
        """Remove a schedule that an operator added, or one that cannot be read. Processes that it started go on. Return
        the schedule, or None if it could not be read. Raises InputError."""
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
        """Start an instance of a schedule now, and return what was started.

        Raises:
            InputError: The previous instance still runs, the overlap policy allows one at a time, and `force` is false.
                Or the start was refused, or no worker has reported the key of the schedule's processes yet.
            StoreUnavailable: A scanner is starting the instance, or others keep changing the schedule.
        """

        def change(schedule: Schedule, word: OperatorWord, now: Any) -> Schedule:
            if schedule.orders is not None and (operation := under_way(self._resources, schedule)) is not None:
                raise InputError(f"schedule {name}: operation {operation} is under way; there is one at a time")
            overlap, started = schedule.plan.overlap, instances(self._resources, schedule)
            running = next((process for process in started if process.state is ProcessState.RUNNING), None)
            if running is not None and overlap is not Overlap.ALLOW and not force:
                raise InputError(
                    f"schedule {name}: process {running.id} still runs, and overlap={overlap} allows one at a time; "
                    "--force starts another one"
                )
            return states.triggered(schedule, word, now)

        before = self.get(name)
        if before.keyed is None and before.orders is None:
            raise InputError(
                f"schedule {name}: no worker that serves {before.type} has read it yet; start one, or try again"
            )
        schedule = self._change(name, "trigger", reason, change)
        starting = schedule.starting
        assert starting is not None, "the change has just set it"
        result = look_at(self._resources, schedule, order=order)
        if result is None:  # a scanner was first
            settled = self.get(name).recent
            result = next((recent for recent in reversed(settled) if recent.slot == starting.slot), None)
        if result is None:
            raise StoreUnavailable(f"schedule {name}: an instance is being started; `recovery schedule show` shows it")
        if result.process is None and result.operation is None:
            raise InputError(f"schedule {name}: not started: {result.reason}")
        return result

    def _change(
        self, name: str, action: str, reason: str, change: Change, settings: Mapping[str, Any] | None = None
    ) -> Schedule:
        with audited(self._resources, f"schedule {action}", name, reason, by=self._by, settings=dict(settings or {})):
            for _ in range(MAX_TRIES):
                before, word = self.get(name), self._word(action, reason)
                after = change(before, word, word.at)
                if self._kept.save(after):
                    return after.evolve(version=after.version + 1)
            raise _too_busy(name)

    def _word(self, action: str, reason: str) -> OperatorWord:
        checked_reason = given.text(reason, "reason") if reason else ""
        return OperatorWord(what=action, by=self._by, reason=checked_reason, at=self._resources.store.now())


def _name_of_other_type(name: str) -> InputError:
    return InputError(f"schedule {name}: is the name of another process type, and kept for its schedule; take another")


def _too_busy(name: str) -> StoreUnavailable:
    return StoreUnavailable(f"schedule {name}: others keep changing it; nothing was changed, try again")
