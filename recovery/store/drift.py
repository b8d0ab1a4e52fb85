"""What a database has against what `schema` says: collections, validators and indexes, missing or different."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pymongo.database import Database

from recovery.store import schema
from recovery.store.client import Document


def missing(database: Database[Document]) -> list[str]:
    """What `schema.create` makes again, or brings up to date, each in a few words. Reads metadata only."""
    return list(_missing(database))


def different(database: Database[Document]) -> dict[str, str]:
    """{index that is there but not as it should be: the command that drops it}: only then can it be made again."""
    found: dict[str, str] = {}
    for name, held in _indexes(database).items():
        for keys, options in schema.INDEXES.get(name, []):
            index = options["name"]
            if index in held and not _is_as(held[index], keys, options):
                found[f"{name}.{index}"] = f"db.{name}.dropIndex({index!r})"
    return found


def _missing(database: Database[Document]) -> Iterator[str]:
    there = {found["name"]: found.get("options", {}) for found in database.list_collections()}
    indexes = _indexes(database)
    for name, validator in schema.VALIDATORS.items():
        if name not in there:
            yield f"collection {name}"
            continue
        if not schema.is_validated(there[name], validator):
            yield f"validator of {name}"
        for _, options in schema.INDEXES.get(name, []):
            if options["name"] not in indexes[name]:
                yield f"index {name}.{options['name']}"


def _indexes(database: Database[Document]) -> dict[str, dict[str, Any]]:
    """{collection: {index: its options}}; none of a collection that is not there."""
    return {name: dict(database[name].index_information()) for name in schema.INDEXES | schema.VALIDATORS}


def _is_as(held: Document, keys: Any, options: Document) -> bool:
    same_keys = [(field, int(order)) for field, order in held["key"]] == [tuple(key) for key in keys]
    expression = options.get("partialFilterExpression")
    same_filter = held.get("partialFilterExpression") == expression
    return same_keys and same_filter and bool(held.get("unique")) == bool(options.get("unique"))
