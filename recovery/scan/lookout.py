"""Looks for what is overdue, from where it was seen last that nothing is.

MongoDB keeps what was taken out of an index for five minutes and more (`minSnapshotHistoryWindowInSeconds`), and who
reads the index from its beginning goes through all of that. Each task leaves there the deadlines that it no longer has:
under load, or after a storm, it is hundreds of thousands of keys, 0.2 µs each, at every look. Those that were to come
are gone through all the same, as far as the first that is live.

Where nothing is overdue nothing becomes so by an earlier deadline: none is set to a time that is past
(`recovery.store.expressions.to_come`). That is so but for what was under way (MARGIN), and for what is rare: a write
that takes longer than that, a failover that takes back a repair, a clock that is set back, a record that another
program writes. So one look in FULL, and the next one after an error, is at all of it.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from recovery.store import schema
from recovery.store.views.due import Due, Look

FULL = 10
"""One look in so many is at all of it, by chance: so it is of the looks of all workers together, however many take
turns, and not of all of theirs at once."""
MARGIN = timedelta(seconds=10)
"""A write says when it began, and is seen when it is done; and a majority's clocks differ by less."""
KEPT = (schema.DECISIONS, schema.GRAPHS, schema.PROCESSES)
"""Collections of which it is known since when nothing is overdue: those with an index that many keys go through."""
_FIRST = datetime.min.replace(tzinfo=UTC) + MARGIN


class Lookout:
    """Of one worker. Not safe for threads."""

    def __init__(self, due: Due) -> None:
        self._due = due
        self._since: dict[str, datetime] = {}

    def since(self, collection: str) -> datetime | None:
        """A moment before which no deadline in a collection is past; None if that is not known."""
        return self._since.get(collection)

    def forget(self) -> None:
        """Something went wrong: the next look is at all of it."""
        self._since = {}

    def look(self) -> Look:
        """What is overdue now. Raises StoreError."""
        since, self._since = self._since, {}
        if random.randrange(FULL) == 0:
            since = {}
        looked = self._due.look(since)
        for name in KEPT:
            first = looked.overdue.get(name, looked.at)
            # Another program writes what is no date, or the first of all.
            if isinstance(first, datetime) and first >= _FIRST:
                self._since[name] = min(first, looked.at) - MARGIN
        return looked
