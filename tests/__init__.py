"""Tests look at the documents themselves, and spoil them: for them alone a `Store` shows its database."""

from recovery.store import Store

Store.database = property(lambda store: store._database)
