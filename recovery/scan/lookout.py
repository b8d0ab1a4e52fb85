"""Looks for what is overdue, from where it was seen last that nothing is.

MongoDB keeps what was taken out of an index for five minutes and more (`minSnapshotHistoryWindowInSeconds`), and who
reads the index from its beginning goes through all of that. Each task leaves there the deadlines that it no longer has:
under load, or after a storm, it is hundreds of thousands of keys, 0.2 µs each, at every look.

Where nothing is overdue nothing becomes so by an earlier deadline: one that is set is to come. That is so but for what
was under way (MARGIN), and for what is rare: a failover that takes back a repair, a clock that is set back, a record
that another program writes, a setting by which something is late at once. So every now and then, and after an error,
all of it is looked at.
"""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta

from recovery.store import schema
from recovery.store.views.due import Due, Look

FROM_THE_BEGINNING_EVERY = 10.0
"""Seconds from one look at all of it to the next: so much later what is rare is found, at most."""
MARGIN = timedelta(seconds=10)
"""A write says when it began, and is seen when it is done; and a majority's clocks differ by less."""
KEPT = (schema.DECISIONS, schema.GRAPHS, schema.PROCESSES)
"""Collections of which it is known since when nothing is overdue: those with an index that many keys go through."""


class Lookout:
    """Of one worker. Not safe for threads."""

    def __init__(self, due: Due) -> None:
        self._due = due
        self._since: dict[str, datetime] = {}
        self._began_at = -math.inf

    def since(self, collection: str) -> datetime | None:
        """A moment before which no deadline in a collection is past; None if that is not known."""
        return self._since.get(collection)

    def look(self) -> Look:
        """What is overdue now. Raises StoreError."""
        now = time.monotonic()
        if now - self._began_at >= FROM_THE_BEGINNING_EVERY:
            self._since, self._began_at = {}, now
        try:
            looked = self._due.look(self._since)
        except BaseException:
            self._since = {}
            raise
        self._since |= dict.fromkeys(set(KEPT) - looked.overdue, looked.at - MARGIN)
        return looked
