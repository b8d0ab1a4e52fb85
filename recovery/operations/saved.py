"""Saved operations: what `recovery operation start @NAME` and schedules order by name.

A saved operation holds what an operation does, with all options of its kind. It is checked when it is saved and
whenever it is used. A started operation or a schedule has its own copy, so it does not change when the saved operation
is changed or forgotten.

Each change is one compare-and-set on the record as it was read, and adds an entry to the audit log.
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
"""Fields of a request that are given each time a saved operation is used."""
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
    """Save an operation under a name, and return the saved record.

    An identical saved operation is left as it is. Raises InputError if the operation can't be ordered, or if a
    different operation has this name and `replace` is False.
    """
    details = _as_asked(asked)
    with audited(resources, "operation save", name, reason, by=by, **details, replace=replace) as outcome:
        name = saved_name(name, "an operation", "weekly-check")
        orders = asked.checked_to_save(resources)
        at, why = resources.store.now(), reason[:REASON_LENGTH]
        new = SavedOperation(id=name, **orders.what(), by=by or who(), reason=why, at=at)
        return put(resources.store.saved_operations, new, as_typed, outcome, replace=replace)


def forget_operation(resources: Resources, name: str, reason: str = "", *, by: str | None = None) -> SavedOperation:
    """Delete a saved operation, and return it as it was. Operations and schedules that were made from it continue.
    Raises InputError if no saved operation has this name."""
    with audited(resources, "operation forget", name, reason, by=by) as outcome:
        saved = named(resources.store.saved_operations, name, NOUN, HOW_TO_SAVE)
        take_out(resources.store.saved_operations, saved)
        outcome.text = f"forgotten: {as_typed(saved)}"
        return saved


def without_name(resources: Resources, asked: OperationRequest) -> tuple[OperationRequest, str | None]:
    """Replace a request for `@NAME` by the saved operation's request. Return the request and NAME, or the unchanged
    request and None.

    Raises InputError if no operation is saved under this name, or if the request gives options that the saved operation
    has.
    """
    if not isinstance(asked.kind, str) or not asked.kind.startswith(SIGN):
        return asked, None
    saved = named(resources.store.saved_operations, asked.kind, NOUN, HOW_TO_SAVE)
    if extra := [_FLAGS[name] for name in _given_fields(asked)]:
        raise InputError(
            f"{SIGN}{saved.id} is {as_typed(saved)}: leave {', '.join(extra)} out, or write the whole operation "
            "without the name"
        )
    at_start = {name: getattr(asked, name) for name in _AT_START if name != "kind"}
    return replace(OperationRequest.of(saved), **at_start), saved.id


def unreadable_operations(resources: Resources, saved: Mapping[str, SavedOperation]) -> dict[str, str]:
    """Return {name: error} of saved operations whose selection can't be parsed, for example because a saved search in
    it was deleted."""
    errors = {}
    for name, operation in saved.items():
        try:
            read_search(resources, operation.selection)
        except InputError as error:
            errors[name] = str(error).partition("\n")[0]
    return errors


def as_typed(orders: Orders) -> str:
    """Return an operation as it is typed: its kind, its selection and its options."""
    return " ".join(
        [orders.kind.value, shlex.quote(orders.selection) if orders.selection else "--all", *_typed_options(orders)]
    )


def _typed_options(orders: Orders) -> Iterator[str]:
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


def _given_fields(asked: OperationRequest) -> list[str]:
    """Return the given fields of a request, except those that belong to each use of a saved operation."""
    defaults = OperationRequest("")
    names = [field.name for field in fields(asked) if field.name not in _AT_START]
    return [name for name in names if getattr(asked, name) != getattr(defaults, name)]


def _as_asked(asked: OperationRequest) -> dict[str, Any]:
    """Return the given fields for the audit log. The request may still be refused."""
    return {"kind": asked.kind, **{name: getattr(asked, name) for name in _given_fields(asked)}}
