"""Takes up what programs counted that nobody scrapes, such as a command: from then on it is this worker's."""

from __future__ import annotations

import logging
import time

from recovery.engine.isolation import in_a_line
from recovery.errors import StoreError
from recovery.log_lines import Seldom
from recovery.metrics.carried import carry_samples
from recovery.store import Store

log = logging.getLogger(__name__)

EVERY = 5.0
"""Seconds between two looks: an operator who watches a dashboard sees what he did at the next scrape."""
PAGE = 100
TELL_EVERY = 300.0


class CountsTaker:
    """Takes them, now and then. For one thread."""

    def __init__(self, store: Store) -> None:
        self._store, self._said = store, Seldom(log, TELL_EVERY)
        self._look_at = float("-inf")

    def take_if_due(self) -> int:
        """How many programs' counts were taken. Does not raise for a database that is away."""
        if time.monotonic() < self._look_at:
            return 0
        self._look_at = time.monotonic() + EVERY
        try:
            taken = self._store.left_counts.take(PAGE)
        except StoreError as error:
            self._said.warning("what commands counted is not taken up (%s)", in_a_line(error))
            return 0
        for left in taken:
            carry_samples(left.samples)
        return len(taken)
