"""What an operator changes while workers run: settings of actors and process types, and which actors are blocked.

A setting is written first, and that alone counts: every process of ours reads it within seconds. Then the deadlines
that it makes too late are moved, so that what runs already is judged by it as well; cut off in between, they are
looked at when they are due.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from recovery.engine.resources import Resources
from recovery.errors import InputError, UnknownActor, UnknownProcessType
from recovery.records import ActorPreferences, ProcessTypePreferences, Stored
from recovery.records.preferences import Preferences, check, setting_names


def actor(resources: Resources, name: str) -> Stored[ActorPreferences]:
    """What is kept of an actor. Raises UnknownActor."""
    stored = resources.store.actors.get(name)
    if stored is None:
        raise UnknownActor(_unknown("actor", name, resources.store.actors.stored()))
    return stored


def process_type(resources: Resources, name: str) -> Stored[ProcessTypePreferences]:
    """What is kept of a process type. Raises UnknownProcessType."""
    stored = resources.store.process_types.get(name)
    if stored is None:
        raise UnknownProcessType(_unknown("process type", name, resources.store.process_types.stored()))
    return stored


def set_actor(resources: Resources, name: str, changes: Mapping[str, Any]) -> None:
    """Set these settings of an actor over what its code says. Raises UnknownActor, InputError."""
    known_settings(ActorPreferences, changes)
    check(actor(resources, name).effective.evolve(**changes))
    resources.store.actors.override(name, changes)
    _hurry_tasks(resources, name)


def unset_actor(resources: Resources, name: str, settings: Iterable[str]) -> None:
    """Let an actor's code decide these settings again. Raises UnknownActor, InputError."""
    names = known_settings(ActorPreferences, settings)
    actor(resources, name)
    resources.store.actors.unset(name, names)
    _hurry_tasks(resources, name)


def set_process_type(resources: Resources, name: str, changes: Mapping[str, Any]) -> None:
    """Set these settings of a process type over what its code says. Raises UnknownProcessType, InputError."""
    known_settings(ProcessTypePreferences, changes)
    check(process_type(resources, name).effective.evolve(**changes))
    resources.store.process_types.override(name, changes)
    _hurry_processes(resources, name)


def unset_process_type(resources: Resources, name: str, settings: Iterable[str]) -> None:
    """Let a process type's code decide these settings again. Raises UnknownProcessType, InputError."""
    names = known_settings(ProcessTypePreferences, settings)
    process_type(resources, name)
    resources.store.process_types.unset(name, names)
    _hurry_processes(resources, name)


def block(resources: Resources, name: str) -> bool:
    """Have no task of an actor begun any more; False: it was blocked already. Raises UnknownActor."""
    actor(resources, name)
    return resources.store.actors.block(name)


def unblock(resources: Resources, name: str) -> bool:
    """Have tasks of an actor begun again; False: it was not blocked. Raises UnknownActor."""
    actor(resources, name)
    changed = resources.store.actors.unblock(name)
    # Whether it changed or not: a call before may have been cut off here.
    resources.store.requeues.unblocked(name)
    return changed


def known_settings(kind: type[Preferences], names: Iterable[str]) -> list[str]:
    """These names, if all are of settings. Raises InputError."""
    known, wanted = setting_names(kind), list(names)
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
            raise InputError(f"no setting is named {name!r}; {hint}")
    return wanted


def _hurry_tasks(resources: Resources, name: str) -> None:
    limit = actor(resources, name).effective.task_limit
    if limit is not None:
        resources.store.requeues.hurry(name, limit)


def _hurry_processes(resources: Resources, name: str) -> None:
    seconds = process_type(resources, name).effective.process_timeout
    if seconds:
        resources.store.processes.hurry(name, seconds)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        return f"no {what} is named {name!r}; did you mean {near[0]!r}?"
    there = f"there are: {', '.join(names[:20])}" if names else "none is known yet: a worker tells when it starts"
    return f"no {what} is named {name!r}; {there}"
