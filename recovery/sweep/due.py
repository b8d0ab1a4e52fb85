"""Sweeps by the clock: one every so often, however many beats ask for one, and however often they are started again."""

from __future__ import annotations

import logging
from datetime import timedelta

from recovery.engine import Resources
from recovery.records import Operation
from recovery.records.operation import UNDER_WAY
from recovery.sweep import ask

log = logging.getLogger(__name__)

SCHEDULED = "Celery beat"
"""Who orders them, in the records of operations."""
WHY = "every sweep_interval"


def order_if_due(resources: Resources, every: float, *, repair: bool) -> Operation | None:
    """Order the next sweep if the last one was ordered so many seconds ago, and is over; None if it is not due. The
    first one is due at once. Raises InputError where no worker serves Spark."""
    last = resources.store.operations.last_of(SCHEDULED)
    if last is not None and last.asked_at is not None:
        if resources.store.now() - last.asked_at < timedelta(seconds=every):
            return None
        if last.state in UNDER_WAY:
            log.info("no sweep is ordered: operation %d, the last one that beat ordered, is still under way", last.id)
            return None
    # Of two that saw the same one last, the second gets what the first has ordered.
    slot = f"sweep after {last.id if last is not None else 0}"
    return ask(resources, why=WHY, repair=repair, by=SCHEDULED, slot=slot)
