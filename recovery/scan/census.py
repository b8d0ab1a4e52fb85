"""Takes the census of processes when it is due. One worker takes it for the whole cluster, in at most 2 % of the time.

The census is for people and monitoring; nothing is decided by it.
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
"""Minimum seconds between two censuses: the default scrape interval of Prometheus."""
SHARE = 50
"""No census is taken for this many times the duration of the last one."""
TELL_EVERY = 300.0
TIME_LIMIT = 5.0
"""Seconds after which a census is cancelled, because scanners run in the same thread. The next one is due SHARE
times as much later."""


class CensusTaker:
    """Takes a census if one is due. For one thread."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._seldom, self._clock = store, Seldom(log, TELL_EVERY), clock
        self._next_check_at = float("-inf")

    def take_if_due(self) -> bool:
        """Take the census if it is due. Return whether it was taken.

        Asks the database at most once in EVERY seconds. Does not raise if the database is unavailable.
        """
        if self._clock() < self._next_check_at:
            return False
        self._next_check_at = self._clock() + EVERY
        try:
            with time_limit(TIME_LIMIT):
                return self._take()
        except StoreError as error:
            self._seldom.warning("no census (%s): processes are not told by type", in_a_line(error))
            return False

    def _take(self) -> bool:
        # If the census is cancelled or the worker dies, the lease keeps others from repeating a census that is too
        # expensive.
        lease_expiry = self._store.censuses.begin(SHARE * TIME_LIMIT)
        if lease_expiry is None:
            return False
        started = self._clock()
        lines = self._store.censuses.count()
        duration = self._clock() - started
        census = Census(id=THE_ONE, seconds=duration, processes=lines)
        return self._store.censuses.save(census, lease_expiry, max(EVERY, SHARE * duration))
