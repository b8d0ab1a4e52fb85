"""Spark: operations that are too large for recovery workers, and processes' records as tables for SQL.

A sweep is a check or repair of all processes. It is an operation like any other: it is recorded, can be paused, and
continues when its driver was killed.

- `session` starts Spark.
- `drive` runs an operation in Spark, job after job.
- `job` is the code of a job's tasks. Each task leases a range, as a recovery worker does. No data moves between
  executors.
- `sums` sums up the results with SQL, in the tables that `source` provides.
- `order_if_due` orders periodic sweeps.

PySpark is imported only after `java` has checked that it and Java are installed.
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
"""Who orders periodic sweeps, in the records of operations."""

log = logging.getLogger(__name__)


def sweep(settings: Settings, *, why: str = WHY, **asked: Any) -> SweepReport:
    """Check all processes, or those of some types, in a Spark of this process. Takes the arguments of `ask`.

    Raises:
        SparkUnavailable: Java or PySpark is missing, or Spark does not start.
        ServerUnavailable: MongoDB does not answer.
        SweepFailed: Spark can't complete the operation.
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
    """Order a sweep, and return its operation.

    Args:
        resources: The databases to use.
        why: The reason, kept with the operation and in the audit log.
        by: Who orders it. By default the user of this process.
        here: Whether this process drives the sweep in its own Spark.
        repair: Whether findings are repaired at once.
        process_type: One process type or several. By default all.
        thorough: Whether unreadable fields are also searched for in records at rest. Takes several times as long.
        parquet: A folder to which the findings are written.
        priorities: Numbers of process types. Types with higher numbers are checked and repaired first; others have 0.
        slot: The occurrence of a periodic sweep. It is ordered only once.

    Raises:
        InputError: The sweep can't be ordered with these arguments.
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
    """Run an operation in a Spark of this process. Return the seconds it took, without the start of Spark. Raises
    SparkUnavailable and SweepFailed."""
    from recovery.sweep.drive import Driver
    from recovery.sweep.session import spark

    name = f"{socket.gethostname()}:{os.getpid()}"
    with spark(resources.settings) as cluster:
        began_at = time.perf_counter()
        Driver(cluster, resources, name).drive(operation.id)
        return time.perf_counter() - began_at


def order_if_due(resources: Resources, every: float, *, repair: bool) -> Operation | None:
    """Order the next periodic sweep, once, however many beats ask for it.

    It is due if there is no earlier one, or if the last one is over and was ordered at least `every` seconds ago.
    Return None if it is not due. Raises InputError if no worker serves Spark.
    """
    last = resources.store.operations.last_of(SCHEDULED)
    if last is not None and last.asked_at is not None:
        if resources.store.now() - last.asked_at < timedelta(seconds=every):
            return None
        if last.state in UNDER_WAY:
            log.info("no sweep is ordered: operation %d, the last sweep that beat ordered, has not ended", last.id)
            return None
    # If two beats saw the same last sweep, the second gets the operation that the first has ordered.
    slot = f"sweep after {last.id if last is not None else 0}"
    return ask(resources, why="every sweep_interval", repair=repair, by=SCHEDULED, slot=slot)
