"""What is known of queues, as a test wants it."""

from __future__ import annotations

from datetime import timedelta

from recovery.store import Store


def polled_and_empty(store: Store, *queues: str, ago: float = 1.0) -> None:
    """Workers poll these queues, and somebody saw them empty so many seconds ago: nothing that was taken by then is in
    hand any more."""
    store.queues.polled(dict.fromkeys(queues))
    store.queues.seen_empty(queues, store.now() - timedelta(seconds=ago), timedelta())
