"""Tests look at the documents themselves, and spoil them: for them alone a `Store` shows its database."""

from recovery.store import Store
from tests.documents import database_of

Store.database = property(database_of)  # type: ignore[attr-defined]
