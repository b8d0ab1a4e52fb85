"""Orders as workers and operators give them, for tests that begin what they order by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recovery.records import OrderKind
from recovery.records.ids import new_pass
from recovery.store import Store
from recovery.store.operators.process_removals import Begun


def order(store: Store, kind: OrderKind, epochs: Mapping[str, int], tasks: Sequence[str] = ()) -> str:
    """Order this for {process: epoch}; the key that their marks are to name."""
    key = new_pass()
    store.orders.give(kind, epochs, key, store.now(), tasks)
    return key


def begin_removal(store: Store, seen: Sequence[tuple[str, int]], within: float) -> list[Begun]:
    """Order the removal of these processes as they were seen, and begin it: those that are being removed."""
    return store.removals.begin(seen, order(store, OrderKind.REMOVE, dict(seen)), within)
