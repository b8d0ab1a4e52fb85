"""Indexes that are not as `schema` says, and in the way of those that are; and those by which MongoDB removes records
that nobody asked it to remove."""

from __future__ import annotations

from typing import Any

from pymongo.database import Database

from recovery.store import creation
from recovery.store.client import Document


def different(database: Database[Document]) -> dict[str, str]:
    """{index that is there but not as it should be: the command that drops it}: only then can it be made again.

    An index of somebody else is among them if it has MongoDB remove records after a time.
    """
    found: dict[str, str] = {}
    for name, held in creation.indexes(database).items():
        for keys, options in creation.INDEXES.get(name, []):
            index = options["name"]
            if index in held and not _is_as(held[index], keys, options):
                found[f"{name}.{index}"] = f"db.{name}.dropIndex({index!r})"
        ours = {options["name"] for _, options in creation.INDEXES.get(name, [])}
        for index, options in held.items():
            if "expireAfterSeconds" in options and index not in ours:
                found[f"{name}.{index}"] = f"db.{name}.dropIndex({index!r})"
    return found


def _is_as(held: Document, keys: Any, options: Document) -> bool:
    same_keys = [(field, int(order)) for field, order in held["key"]] == [tuple(key) for key in keys]
    expression = options.get("partialFilterExpression")
    same_filter = held.get("partialFilterExpression") == expression
    same_lifetime = held.get("expireAfterSeconds") == options.get("expireAfterSeconds")
    return same_keys and same_filter and same_lifetime and bool(held.get("unique")) == bool(options.get("unique"))
