"""The sweep: every process of a selection read and judged in Spark, and repaired if asked.

The scanners see what is overdue; a sweep sees everything, also what lost its deadline or never had one, and
so tells that nothing is forgotten. `plan` cuts the process ids into ranges that are even in volume. `read`
goes through a range in key order and passes over what is plainly at rest, `outline` runs the scanners' rules on
the little that was read of the others, `examine` runs them again on the suspects, read whole, and then the
scanners' repair; `job` does that for all ranges in Spark. No data moves between executors: a process's records
are neighbours in every collection. `source` has the same records as tables, for whoever asks in SQL.

PySpark is imported only once Java and it are known to be there (`java`).
"""

from __future__ import annotations

import logging
import time

from recovery.engine import Resources
from recovery.repair import look_around
from recovery.rules import Surroundings
from recovery.settings import Settings
from recovery.store import check_server
from recovery.sweep.java import check as check_java
from recovery.sweep.plan import plan
from recovery.sweep.report import Suspect, SweepReport, total

__all__ = ["Suspect", "SweepReport", "sweep"]

log = logging.getLogger(__name__)


def sweep(
    settings: Settings, *, repair: bool = False, process_type: str | None = None, thorough: bool = False
) -> SweepReport:
    """Judge all processes, or those of one type, and repair what is wrong if `repair`. `thorough`: fields that can't be
    read are looked for in what is at rest, too, which takes three times as long.

    Raises SparkUnavailable, ServerUnavailable, SweepFailed.
    """
    check_java()
    check_server(settings.mongo_uri)
    from recovery.sweep.examine import SweepRequest
    from recovery.sweep.job import run
    from recovery.sweep.session import spark

    resources = Resources.connect(settings)
    with spark(settings) as context:
        began = time.perf_counter()
        request = SweepRequest(settings, _look_around(resources), repair, process_type, thorough)
        ranges = plan(resources.store.ranges, context.defaultParallelism)
        results = run(context, ranges, request)
        seconds = time.perf_counter() - began
    report = total(results, seconds=seconds, repair=repair, process_type=process_type)
    log.info(
        "sweep: %d processes in %.1f s, %d suspects, %d repairs",
        report.processes, report.seconds, report.suspects, sum(report.repaired.values()),
    )  # fmt: skip
    return report


def _look_around(resources: Resources) -> Surroundings:
    """What is known of all queues that any worker polled or serves."""
    known = {*resources.store.actors.all(), *resources.store.queues.all()}
    return look_around(resources, queues=known)
