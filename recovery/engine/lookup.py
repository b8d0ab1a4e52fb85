"""Find a process or a task by the id or custom id that a caller gives, and suggest a name in place of an unknown one.

A value that is not a text is refused, because MongoDB might take it as a query.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from recovery.engine.resources import Resources
from recovery.errors import InputError, ProcessNotFound
from recovery.records import Process, given
from recovery.records.ids import SEPARATOR, is_process_id
from recovery.store.views.process_lookup import Named

MAX_LISTED = 10
"""Maximum number of processes that an error lists if they have the same custom id."""


def find_process(resources: Resources, process_id: str) -> Process:
    """Return the process with this id, without its large fields, as a majority of MongoDB's members has it.

    The id may have any form, because other programs may have made the process.

    Raises:
        ProcessNotFound: No process has this id.
        InputError: The id is not a text.
    """
    process = resources.store.processes.find_committed(given.text(process_id, "process_id"))
    if process is None:
        raise not_found(resources, process_id)
    return process


def not_found(resources: Resources, process_id: str) -> ProcessNotFound:
    """Return the error for an id that no process has."""
    advice = "; a process id has 32 hex digits. Commands take a custom id as well"
    place = f"database {resources.settings.database}{'' if is_process_id(process_id) else advice}"
    return ProcessNotFound(f"no process has the id {given.shown(process_id)} in {place}")


def resolve(resources: Resources, name: str) -> str:
    """Return the id of the process that has this id or, if there is none, this custom id.

    If no process has the custom id now, return the id of the process that had it last. If there never was one, return
    the name unchanged.

    Raises:
        InputError: Processes of several types have this custom id. The message lists them.
    """
    name = given.text(name, "process_id")
    if resources.store.processes.is_committed(name):
        return name
    matches = resources.store.process_names.find(name, MAX_LISTED + 1)
    if len(matches) > 1:
        raise InputError(_ambiguous(name, matches))
    return matches[0].id if matches else resources.store.process_names.last_former(name) or name


def resolve_task(resources: Resources, target: str) -> tuple[str, str | None]:
    """Return (process id, task id or None) for a target `P` or `P/T`. P is an id, or a custom id, which may contain
    slashes."""
    target = given.text(target, "process_id")
    process_id, _, task = target.partition(SEPARATOR)
    if task and not resources.store.processes.is_committed(process_id):
        if (whole_id := resolve(resources, target)) != target:
            return whole_id, None
        custom_id, _, task_after_slash = target.rpartition(SEPARATOR)
        if (id_before_slash := resolve(resources, custom_id)) != custom_id:
            return id_before_slash, task_after_slash
        return process_id, task
    return resolve(resources, process_id), task or None


def _ambiguous(custom_id: str, matches: list[Named]) -> str:
    listed = ", ".join(f"{process.id} ({process.type})" for process in matches[:MAX_LISTED])
    more = " and more" if len(matches) > MAX_LISTED else ""
    number = f"over {MAX_LISTED}" if more else len(matches)
    return f"{custom_id!r} is the custom id of {number} processes: {listed}{more}; give the id of one of them"


SHOWN = 20
"""Maximum number of names that a message lists: as many as a reader takes in at a glance."""


def hint(name: str, known: Sequence[str], if_none: str) -> str:
    """Return `did you mean ...?` with the nearest known name, or `there are: ...`, or `if_none` if no name is known."""
    close_matches = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close_matches:
        return f"did you mean {close_matches[0]!r}?"
    return f"there are: {', '.join(known[:SHOWN])}" if known else if_none


def near(name: str, known: Iterable[str]) -> str:
    """Return a hint about a name that an application has not registered."""
    return hint(name, sorted(known), "the app has none")


def checked_name(name: str | None) -> str | None:
    """Return the name that a decorator gives an actor, or None. Raises InputError for a decorator without parentheses,
    which gets the function in place of a name."""
    if callable(name):
        raise InputError(f"{place_of(name)}: write the decorator with parentheses, as in @app.actor()")
    return None if name is None else given.text(name, "name of an actor")


def place_of(function: Callable[..., Any]) -> str:
    """Return where a function is defined, such as `shop.orders.ship`."""
    module, name = (getattr(function, attribute, "?") for attribute in ("__module__", "__qualname__"))
    return f"{given.shown(module)[1:-1]}.{given.shown(name)[1:-1]}"


def unknown_type(resources: Resources, name: str) -> str | None:
    """Return a message about a process type that no worker has reported and no process has, with the nearest known
    name. Return None if the type is known."""
    known = sorted(resources.store.process_types.stored())
    if name in known or resources.store.search.newest(1, process_type=name):
        return None
    suggestion = hint(name, known, "no worker has reported any type")
    return f"no process of type {given.shown(name)} was seen; {suggestion}"
