"""Takes the census where it is due: one worker for the whole cluster, and none of it more than a fiftieth of the time.

It is for people and for monitoring; nothing is decided by it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from recovery.engine.isolation import in_a_line
from recovery.errors import StoreError
from recovery.log_lines import Seldom
from recovery.records import Census
from recovery.store import Store
from recovery.store.views.metric_counts import THE_ONE
from recovery.store.views.overview import time_limit

log = logging.getLogger(__name__)

EVERY = 15.0
"""Seconds between two, as often as Prometheus asks by default."""
SHARE = 50
"""Times as long as it took nobody takes another."""
TELL_EVERY = 300.0
TIME_LIMIT = 5.0
"""Seconds after which it is cut off, to be tried again after SHARE times as long: scanners run in the same thread."""


class CensusTaker:
    """Takes one, if nobody has for long enough. For one thread."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._said, self._clock = store, Seldom(log, TELL_EVERY), clock
        self._look_at = float("-inf")

    def take_if_due(self) -> bool:
        """Whether it was taken. Asks the database once in EVERY seconds. Does not raise for one that is away."""
        if self._clock() < self._look_at:
            return False
        self._look_at = self._clock() + EVERY
        try:
            with time_limit(TIME_LIMIT):
                return self._take()
        except StoreError as error:
            self._said.warning("no census (%s): processes are not told by type", in_a_line(error))
            return False

    def _take(self) -> bool:
        # Cut off, or killed in the middle, it was too much, perhaps: the next one waits for long.
        begun = self._store.censuses.begin(SHARE * TIME_LIMIT)
        if begun is None:
            return False
        began = self._clock()
        lines = self._store.censuses.count()
        took = self._clock() - began
        census = Census(id=THE_ONE, seconds=took, processes=lines)
        return self._store.censuses.save(census, begun, max(EVERY, SHARE * took))
