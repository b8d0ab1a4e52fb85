"""What a command counted is left in MongoDB, where a worker takes it up: a command ends too soon to be scraped."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a command that asks nothing of the servers does without their drivers
    from recovery.engine import Resources
    from recovery.metrics.carried_counts import Counted

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable: where prometheus-client keeps files of what many processes count."""
TIME_LIMIT = 2.0
"""Seconds. It is not what the operator waits for."""

_connected: list[tuple[Resources, Counted]] = []


def begin(resources: Resources) -> None:
    """Remember what was counted so far, and to whom to tell the rest."""
    if not _connected:
        _connected.append((resources, _counted()))


def _counted() -> Counted:
    """Return what was counted so far: nothing, if the metrics were never imported, as in most commands."""
    if not _counts():
        return {}
    from recovery.metrics.carried_counts import counted

    return counted()


def _counts() -> bool:
    """Whether anything in this process counts."""
    return "recovery.metrics.registry" in sys.modules


def count_in_memory() -> None:
    """Have this command write no files of what it counts, though the environment names a folder for them: `leave` has
    it counted, and the folder may not be there."""
    if FOLDER in os.environ and "prometheus_client" not in sys.modules:
        from prometheus_client import values

        values.ValueClass = values.MutexValue


def leave_nothing() -> None:
    """What this process counts is in its own metrics alone."""
    _connected.clear()


def leave() -> None:
    """Leave what was counted since. Does not raise where MongoDB does not take it: then it is a count too few."""
    if not _connected:
        return
    resources, before = _connected.pop()
    if not _counts():
        return
    from recovery.metrics import carried_counts

    carried_counts.leave(resources.store, before, TIME_LIMIT)
