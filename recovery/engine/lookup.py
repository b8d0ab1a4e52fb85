"""A process by the id that a caller gives, or its custom id. What is no text is not looked up: to MongoDB it might be
a query.

To a name that nobody knows the one is said that may have been meant, or those there are.
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
"""Processes of one custom id that an error lists."""


def find_process(resources: Resources, process_id: str) -> Process:
    """The process of this id, of whatever form: others may have made it; briefly, as a majority has it.

    Raises ProcessNotFound, and InputError for what is no text.
    """
    process = resources.store.processes.find_committed(given.text(process_id, "process_id"))
    if process is None:
        raise not_found(resources, process_id)
    return process


def not_found(resources: Resources, process_id: str) -> ProcessNotFound:
    """The error for an id that no process has."""
    form = "; an id has 32 hex digits, as `start` gives it. Commands take a custom id, too"
    where = f"database {resources.settings.database}{'' if is_process_id(process_id) else form}"
    return ProcessNotFound(f"no process has the id {given.shown(process_id)} in {where}")


def resolve(resources: Resources, name: str) -> str:
    """The id of the process that has this id or, if none has, this custom id; or that was the last to give it up, if
    none took it since. As it was given if none of them is there.

    Raises InputError for a custom id that processes of several types have: it lists them.
    """
    name = given.text(name, "process_id")
    if resources.store.processes.is_committed(name):
        return name
    found = resources.store.process_names.find(name, MAX_LISTED + 1)
    if len(found) > 1:
        raise InputError(_ambiguous(name, found))
    return found[0].id if found else resources.store.process_names.last_former(name) or name


def resolve_task(resources: Resources, target: str) -> tuple[str, str | None]:
    """(process id, task or None) of `P` or `P/T`, P an id or a custom id, which may have slashes in it."""
    target = given.text(target, "process_id")
    process_id, _, task = target.partition(SEPARATOR)
    if task and not resources.store.processes.is_committed(process_id):
        if (whole := resolve(resources, target)) != target:
            return whole, None
        custom_id, _, last = target.rpartition(SEPARATOR)
        if (of_task := resolve(resources, custom_id)) != custom_id:
            return of_task, last
        return process_id, task
    return resolve(resources, process_id), task or None


def _ambiguous(custom_id: str, found: list[Named]) -> str:
    listed = ", ".join(f"{one.id} ({one.type})" for one in found[:MAX_LISTED])
    more = " and more" if len(found) > MAX_LISTED else ""
    number = f"over {MAX_LISTED}" if more else len(found)
    return f"{custom_id!r} is the custom id of {number} processes: {listed}{more}; give the id of one of them"


SHOWN = 20
"""Names that a message lists: as many as a terminal shows at a glance."""


def hint(name: str, known: Sequence[str], if_none: str) -> str:
    """`did you mean ...?`, `there are: ...`, or, where nothing is known, `if_none`."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"there are: {', '.join(known[:SHOWN])}" if known else if_none


def near(name: str, known: Iterable[str]) -> str:
    """The same for what an application has registered."""
    return hint(name, sorted(known), "the app has none")


def checked_name(name: str | None) -> str | None:
    """Return the name that a decorator gives an actor. Raises InputError for a decorator without parentheses, which
    gets the function in the name's place."""
    if callable(name):
        raise InputError(f"{place_of(name)}: write the decorator with parentheses, as in @app.actor()")
    return None if name is None else given.text(name, "name of an actor")


def place_of(function: Callable[..., Any]) -> str:
    """Where a function is defined, as in `shop.orders.ship`."""
    module, name = (getattr(function, one, "?") for one in ("__module__", "__qualname__"))
    return f"{given.shown(module)[1:-1]}.{given.shown(name)[1:-1]}"


def unknown_type(resources: Resources, name: str) -> str | None:
    """Return what to say of a process type that no worker has reported and no process has, with the name that may have
    been meant; None for a type that is known."""
    known = sorted(resources.store.process_types.stored())
    if name in known or resources.store.search.newest(1, process_type=name):
        return None
    there = hint(name, known, "no worker has reported any type")
    return f"no process of type {given.shown(name)} was seen; {there}"
