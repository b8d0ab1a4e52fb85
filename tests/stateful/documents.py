"""All documents of some collections, as they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pymongo.database import Database

Documents = dict[str, dict[str, dict[str, Any]]]
"""{collection: {id: document}}"""


def read_all(database: Database[Any], names: Iterable[str]) -> Documents:
    """All documents of these collections, in one query."""
    first, *others = names
    union = [{"$unionWith": {"coll": name, "pipeline": _marked(name)}} for name in others]
    found: Documents = {name: {} for name in (first, *others)}
    for document in database[first].aggregate([*_marked(first), *union]):
        found[document.pop("_of")][document["_id"]] = document
    return found


def _marked(name: str) -> list[dict[str, Any]]:
    return [{"$set": {"_of": {"$literal": name}}}]
