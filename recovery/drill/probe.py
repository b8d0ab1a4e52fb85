"""Drills one after the other, counted in this process's metrics: the promise itself on a dashboard.

A server or a worker that is not there is what a probe is for: it counts as a start that failed, and the next drill
tries again. Two versions at once are a deployment: that drill is left out and counts as nothing. So is, after the
first, one that may not begin, since the canary is blocked or a worker that was killed is not back yet.

Metrics: recovery_drill_seconds, recovery_drill_probes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from recovery import metrics
from recovery.drill.drill_report import Report
from recovery.drill.drilling import Plan, Tell, run
from recovery.drill.promises import Step
from recovery.drill.sightings import Outcome
from recovery.engine import Resources
from recovery.errors import BrokerError, InputError, OtherVersion, ServerUnavailable

MIN_EVERY, MAX_EVERY = 10.0, 180.0
"""Seconds. One takes some five, and the alert of those that fail looks for one in each of two times three minutes."""


def watch(
    resources: Resources,
    plan: Plan,
    every: float,
    show: Callable[[Report], None],
    tell: Tell,
    ending: threading.Event | None = None,
) -> None:
    """Run a drill every so many seconds until `ending` is set, or something is raised that does not pass by itself.
    `show` is given each report, `tell` what kept a drill from beginning. Raises InputError for the first alone."""
    ending, first = ending or threading.Event(), True
    while not ending.is_set():
        began = time.monotonic()
        try:
            run_once(resources, plan, show, tell)
        except InputError as error:
            if first:
                raise
            tell(f"no drill: {error}")
        first = False
        ending.wait(max(0.0, every - (time.monotonic() - began)))


def run_once(resources: Resources, plan: Plan, show: Callable[[Report], None], tell: Tell) -> Report | None:
    """One drill, counted; None if it could not be run."""
    try:
        report = run(resources, plan)
    except OtherVersion as error:
        tell(f"no drill: {error}")
        return None
    except (ServerUnavailable, BrokerError) as error:
        metrics.DRILL_PROBES.labels(Step.START.value, Outcome.FAILED.value).inc()
        tell(f"no drill: {error}")
        return None
    report.count()
    show(report)
    return report
