"""Looks for what is overdue, from where it was seen last that nothing is.

MongoDB keeps what was taken out of an index for five minutes and more (`minSnapshotHistoryWindowInSeconds`), and who
reads the index from its beginning goes through all of that. Each task leaves there the deadlines that it no longer has:
under load, or after a storm, it is hundreds of thousands of keys, 0.2 µs each, at every look. Those that were to come
are gone through all the same, as far as the first that is live.

Where nothing is overdue nothing becomes so by an earlier deadline: none is set to a time that is past
(`recovery.store.expressions.to_come`). That is so but for what was under way (MARGIN), and for what is rare: a failover
that takes back a repair, a clock that is set back, a record that another program writes. So every now and then, and
after an error, all of it is looked at.
"""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta

from recovery.store import schema
from recovery.store.views.due import Due, Look

LOOKS, LEAST, MOST = 10, 10.0, 30.0
"""From one look at all of it to the next there are so many looks, and so many seconds at least and at most: by so much
later what is rare is found. Of many workers each looks seldom, and one of them soon looks at all."""
MARGIN = timedelta(seconds=10)
"""A write says when it began, and is seen when it is done; and a majority's clocks differ by less."""
KEPT = (schema.DECISIONS, schema.GRAPHS, schema.PROCESSES)
"""Collections of which it is known since when nothing is overdue: those with an index that many keys go through."""


class Lookout:
    """Of one worker. Not safe for threads."""

    def __init__(self, due: Due) -> None:
        self._due = due
        self._since: dict[str, datetime] = {}
        self._began_at, self._looks = -math.inf, 0

    def since(self, collection: str) -> datetime | None:
        """A moment before which no deadline in a collection is past; None if that is not known."""
        return self._since.get(collection)

    def forget(self) -> None:
        """Something went wrong: look at all of it."""
        self._since, self._looks = {}, 0

    def look(self) -> Look:
        """What is overdue now. Raises StoreError."""
        now = time.monotonic()
        if now - self._began_at >= (LEAST if self._looks >= LOOKS else MOST):
            self._began_at = now
            self.forget()
        try:
            looked = self._due.look(self._since)
        except BaseException:
            self.forget()
            raise
        self._looks += 1
        for name in KEPT:
            first = looked.overdue.get(name, looked.at)
            if isinstance(first, datetime):
                self._since[name] = min(first, looked.at) - MARGIN
        return looked
