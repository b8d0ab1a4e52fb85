"""What a Spark task does: it leases one range of an operation and works at it, as a recovery worker does.

Which range that is, is for the leases to say and not for Spark: so a task that is tried again, beside one that is still
running on an executor that Spark has abandoned, takes another range or none, and nothing is counted twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from recovery.engine import Applier
from recovery.metrics.carried import Counted, counted
from recovery.operations import OperationWorker
from recovery.settings import Settings
from recovery.sweep.connections import connected


@dataclass(frozen=True)
class Work:
    """What the driver sends to all executors."""

    settings: Settings
    operation: int
    name: str
    """In whose name ranges are leased: the driver takes back what executors that are gone had."""
    seconds: float = math.inf
    """After which a range is given back, as far as it is."""


def work_at_a_range(work: Work) -> Counted:
    """Lease a range, and work at it till it is done, or nobody is to work at it; what was counted meanwhile. Nothing
    happens where none is free. Raises StoreError, BrokerError."""
    before = counted()
    _worker(work.settings, work.name).work_once(work.operation, work.seconds)
    return _grown(before, counted())


def _grown(before: Counted, after: Counted) -> Counted:
    return {key: value - before.get(key, 0.0) for key, value in after.items() if value != before.get(key, 0.0)}


@lru_cache(maxsize=4)
def _worker(settings: Settings, name: str) -> OperationWorker:
    resources = connected(settings)
    return OperationWorker(resources, Applier(resources), name)
