"""Operations under names: what an operator saves, and what `recovery operation start @NAME` and schedules order by it.

A saved operation is what an operation is to do, with all options of its kind. It is checked when it is saved, and again
whenever it is used. Whoever uses it takes a copy: an operation that was started, and a schedule that was added, stay as
they are when the saved one is changed or forgotten.

Each change is one compare-and-set on the record as it was read, and an entry in the audit log.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from recovery.engine import Resources
from recovery.engine.operators.auditing import audited, who
from recovery.engine.operators.saved_searches import read_search
from recovery.engine.operators.saving import named, put, take_out
from recovery.errors import InputError
from recovery.limits import REASON_LENGTH
from recovery.operations.kinds import OPTIONS
from recovery.operations.request import OperationRequest
from recovery.records import Orders, SavedOperation
from recovery.records.search_names import SIGN, saved_name
from recovery.wording import show_duration

NOUN, HOW_TO_SAVE = "operation", "recovery operation save"
_AT_START = ("kind", "apply", "here", "none_is_fine", "slot")
"""Fields of a request that are given whenever a saved operation is used."""
_FLAGS = {"selection": "the selection", "everything": "--all", "rate": "--rate", "priorities": "--priority"}
_FLAGS |= {"spark": "--spark", **{option.name: option.flag for option in OPTIONS}}


def save_operation(
    resources: Resources,
    name: str,
    asked: OperationRequest,
    reason: str = "",
    *,
    replace: bool = False,
    by: str | None = None,
) -> SavedOperation:
    """Give an operation a name; as it is saved. One that is saved already stays as it is. Raises InputError for what
    can't be ordered, and where another is saved under this name, unless that is to be replaced."""
    details = _as_asked(asked)
    with audited(resources, "operation save", name, reason, by=by, **details, replace=replace) as outcome:
        name = saved_name(name, "an operation", "weekly-check")
        orders = asked.checked_to_save(resources)
        at, why = resources.store.now(), reason[:REASON_LENGTH]
        new = SavedOperation(id=name, **orders.what(), by=by or who(), reason=why, at=at)
        return put(resources.store.saved_operations, new, as_typed, outcome, replace=replace)


def forget_operation(resources: Resources, name: str, reason: str = "", *, by: str | None = None) -> SavedOperation:
    """Forget a saved operation; as it was. What was ordered by it goes on, and so do schedules. Raises InputError where
    there is none of this name."""
    with audited(resources, "operation forget", name, reason, by=by) as outcome:
        found = named(resources.store.saved_operations, name, NOUN, HOW_TO_SAVE)
        take_out(resources.store.saved_operations, found)
        outcome.text = f"forgotten: {as_typed(found)}"
        return found


def without_name(resources: Resources, asked: OperationRequest) -> tuple[OperationRequest, str | None]:
    """Return what is asked for, and the name of the saved operation that it was asked for by. Raises InputError where
    none is saved under this name, and where options are given that it has itself."""
    if not isinstance(asked.kind, str) or not asked.kind.startswith(SIGN):
        return asked, None
    found = named(resources.store.saved_operations, asked.kind, NOUN, HOW_TO_SAVE)
    if more := [_FLAGS[name] for name in _given(asked)]:
        raise InputError(
            f"{SIGN}{found.id} is {as_typed(found)}: leave {', '.join(more)} out, or write the whole operation without "
            "the name"
        )
    at_start = {name: getattr(asked, name) for name in _AT_START if name != "kind"}
    return replace(OperationRequest.of(found), **at_start), found.id


def unreadable_operations(resources: Resources, saved: Mapping[str, SavedOperation]) -> dict[str, str]:
    """{name: why} of those whose selection can't be read any more: written by another version, or with a part that is
    gone."""
    found = {}
    for name, one in saved.items():
        try:
            read_search(resources, one.selection)
        except InputError as error:
            found[name] = str(error).partition("\n")[0]
    return found


def as_typed(orders: Orders) -> str:
    """Return what an operation does as it is typed: its kind, its selection and its options."""
    return " ".join(
        [orders.kind.value, shlex.quote(orders.selection) if orders.selection else "--all", *_typed(orders)]
    )


def _typed(orders: Orders) -> Iterator[str]:
    for option in OPTIONS:
        value = getattr(orders, option.name)
        if value is True:
            yield option.flag
        elif value is not None:
            text = show_duration(value) if isinstance(value, float) else str(value)
            yield f"{option.flag} {shlex.quote(text)}"
    if orders.spark is not None:
        yield "--spark" if orders.spark else "--no-spark"
    if orders.rate is not None:
        yield f"--rate {orders.rate:.15g}"
    for name, priority in orders.priorities.items():
        yield f"--priority {shlex.quote(f'{name}={priority}')}"


def _given(asked: OperationRequest) -> list[str]:
    """Return the fields that were given, of those that a saved operation has."""
    empty = OperationRequest("")
    names = [one.name for one in fields(asked) if one.name not in _AT_START]
    return [name for name in names if getattr(asked, name) != getattr(empty, name)]


def _as_asked(asked: OperationRequest) -> dict[str, Any]:
    """Return what was given, as the audit log has it though it may be refused."""
    return {"kind": asked.kind, **{name: getattr(asked, name) for name in _given(asked)}}
