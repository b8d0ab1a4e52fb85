"""Spark: operations that are too big for recovery workers, and records as tables for whoever asks in SQL.

A sweep is a check or a repair of every process: an operation like any other, so it is on record, can be paused, and is
gone on with when its driver is killed. `session` starts Spark, `drive` brings an operation on in it, job after job,
`job` is what its tasks do: each leases a range, as a recovery worker does. No data moves between executors. `sums`
asks the results in SQL, of the tables that `source` makes. `order_if_due` orders sweeps by the clock.

PySpark is imported only once Java and it are known to be there (`java`).
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from recovery import operations
from recovery.engine import Resources
from recovery.operations import OperationRequest
from recovery.records import Operation
from recovery.records.operation import UNDER_WAY
from recovery.search import quoted
from recovery.settings import Settings
from recovery.store import check_server
from recovery.sweep.java import check as check_java
from recovery.sweep.sweep_report import Suspect, SweepReport, report_of

__all__ = ["Suspect", "SweepReport", "ask", "drive_here", "order_if_due", "report_of", "sweep"]

WHY = "a sweep"
SCHEDULED = "Celery beat"
"""Who orders them, in the records of operations."""

log = logging.getLogger(__name__)


def sweep(settings: Settings, *, why: str = WHY, **asked: Any) -> SweepReport:
    """Judge all processes, or those of one type, in a Spark of this process; the arguments are those of `ask`.

    Raises SparkUnavailable, ServerUnavailable, SweepFailed.
    """
    check_java(settings.spark_master)
    check_server(settings.mongo_uri)
    resources = Resources.connect(settings)
    operation = ask(resources, why=why, here=True, **asked)
    seconds = drive_here(resources, operation)
    return report_of(resources, operation.id, seconds)


def ask(  # noqa: PLR0913
    resources: Resources,
    *,
    why: str = WHY,
    by: str | None = None,
    here: bool = False,
    repair: bool = False,
    process_type: str | Sequence[str] | None = None,
    thorough: bool = False,
    parquet: str | None = None,
    priorities: Mapping[str, int] | None = None,
    slot: str | None = None,
) -> Operation:
    """Order a sweep.

    Args:
        resources: Where it is ordered.
        why: Kept with the operation and in the audit log.
        by: Who orders it; by default the user of this process.
        here: Whether this process drives it in a Spark of its own.
        repair: Whether what is wrong is repaired at once.
        process_type: One process type, or several; by default all.
        thorough: Whether fields that can't be read are looked for in what is at rest, too. Takes several times as long.
        parquet: A folder for what is found.
        priorities: Process types that are looked at, and repaired, before others; those with higher numbers first.
        slot: Of a sweep by the clock: its time, by which it is ordered once.

    Raises:
        InputError: It can't be ordered like this.
    """
    types = [process_type] if isinstance(process_type, str) else list(process_type or ())
    asked = OperationRequest(
        kind="repair" if repair else "check",
        selection=" or ".join(f"type:{quoted(name)}" for name in types),
        everything=not types,
        apply=repair,
        thorough=thorough,
        spark=True,
        here=here,
        parquet=parquet,
        none_is_fine=True,
        priorities=dict(priorities or {}),
        slot=slot,
    )
    return operations.start(resources, asked, why, by=by)


def drive_here(resources: Resources, operation: Operation) -> float:
    """Bring an operation on in a Spark of this process; the seconds it took, without the start of Spark. Raises
    SparkUnavailable, SweepFailed."""
    from recovery.sweep.drive import Driver
    from recovery.sweep.session import spark

    name = f"{socket.gethostname()}:{os.getpid()}"
    with spark(resources.settings) as cluster:
        began = time.perf_counter()
        Driver(cluster, resources, name).drive(operation.id)
        return time.perf_counter() - began


def order_if_due(resources: Resources, every: float, *, repair: bool) -> Operation | None:
    """Order the next sweep by the clock, however many beats ask for one.

    It is due if the last one was ordered `every` seconds ago and is over, and at once if there was none. Return None if
    it is not due. Raises InputError if no worker serves Spark.
    """
    last = resources.store.operations.last_of(SCHEDULED)
    if last is not None and last.asked_at is not None:
        if resources.store.now() - last.asked_at < timedelta(seconds=every):
            return None
        if last.state in UNDER_WAY:
            log.info("no sweep is ordered: operation %d, the last one that beat ordered, is still under way", last.id)
            return None
    # Of two that saw the same one last, the second gets what the first has ordered.
    slot = f"sweep after {last.id if last is not None else 0}"
    return ask(resources, why="every sweep_interval", repair=repair, by=SCHEDULED, slot=slot)
