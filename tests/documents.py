"""The database behind a store: tests look at the documents themselves, and spoil them."""

from __future__ import annotations

from typing import Any

from pymongo.database import Database

from recovery.store import Store


def database_of(store: Store) -> Database[dict[str, Any]]:
    """For tests alone; the product's database is seen by its store alone."""
    return store._database
