"""Observes a running demo from outside: in the database, in the ledger, and in the workers' counters.

For a process that has not ended in time it decides whether the process makes progress or is stuck. A process makes
progress while its live records have deadlines in the future, or deadlines that are past for no longer than scanners may
take. Otherwise it is stuck. It is also stuck if none of its tasks is queued or worked on, and nothing has happened for
longer than the interval at which its graph is scanned.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from recovery.demo import ledger
from recovery.demo.demo_report import Counts
from recovery.demo.screen import DemoFigures
from recovery.engine import Resources
from recovery.errors import ProcessNotFound, StoreError, StoreUnavailable
from recovery.health import process_check
from recovery.records import DecisionState, ProcessState
from recovery.rules import Finding, Snapshot
from recovery.settings import Settings
from recovery.store.views.overview import time_limit
from recovery.wfformat import workload

SCANS = 10
"""Scan intervals by which a deadline may be past on a busy machine, in addition to a heartbeat timeout. Scanners wait
that long after an outage."""
SHOWN = 3
"""Maximum findings in a text."""
MAX_TEXT = 300


def standing(resources: Resources, process_id: str) -> str:
    """Return 'still running' or 'stuck', and the reason. Call it while workers are alive."""
    try:
        examined = process_check.look(resources, process_id)
        now = resources.store.now()
    except ProcessNotFound:
        return "gone: it has no records"
    except StoreError as error:
        return f"presumably running: MongoDB did not answer ({error})"[:MAX_TEXT]
    return judge(examined.snapshot, examined.findings, now, resources.settings)


def judge(snapshot: Snapshot, findings: Sequence[Finding], now: datetime, settings: Settings) -> str:
    """Return the same as `standing`, for a process as it was read at `now`."""
    if snapshot.process is not None and snapshot.process.state is not ProcessState.RUNNING:
        return f"{snapshot.process.state} since a moment ago"
    allowed = settings.heartbeat_timeout + SCANS * settings.scan_interval
    findings_text = "".join(f"; {finding.rule}: {finding.evidence}" for finding in findings[:SHOWN])
    deadlines = process_check.deadlines(snapshot)
    if not deadlines:
        return f"stuck: none of its records has a deadline{findings_text}"
    next_deadline = deadlines[0]
    overdue = (now - next_deadline.at).total_seconds()
    if overdue > allowed:
        return (
            f"stuck: {next_deadline.record} ({next_deadline.what}) has been overdue for {overdue:.0f} s{findings_text}"
        )
    quiet_seconds = (now - max(_progress_times(snapshot), default=now)).total_seconds()
    active = [decision for decision in snapshot.decisions.values() if decision.recovery_time]
    if not active and quiet_seconds > settings.idle_timeout + allowed:
        return (
            "stuck: none of its tasks is queued or worked on, and nothing has happened for "
            f"{quiet_seconds:.0f} s{findings_text}"
        )
    finished = sum(decision.state is DecisionState.FINISHED for decision in snapshot.decisions.values())
    return (
        f"still running: {finished} of {len(snapshot.decisions)} tasks are done, the last event was "
        f"{quiet_seconds:.1f} s ago, and {next_deadline.record} ({next_deadline.what}) is scanned in "
        f"{max(0.0, -overdue):.1f} s{findings_text}"
    )


def _progress_times(snapshot: Snapshot) -> Iterator[datetime]:
    """Yield when the process made progress: starts, and when tasks were queued and finished."""
    for decision in snapshot.decisions.values():
        if decision.queued_at:
            yield decision.queued_at
        if decision.outcome and decision.outcome.finished_at:
            yield decision.outcome.finished_at
    if snapshot.process and snapshot.process.started_at:
        yield snapshot.process.started_at


LOOK_TIMEOUT = 2.0
MAX_READ = 200
"""Maximum running processes whose values are read repeatedly, to find accepted values that change."""
CATCH_UP_TIMEOUT = 60.0
"""Seconds to wait until killed members have returned and caught up."""
COUNT_EVERY = 1.0


class DemoWatch:
    """The processes of a demo, and how far they are."""

    def __init__(self, standing: DemoFigures, ledger_file: Path, metrics: Path) -> None:
        """`metrics` is the folder with the workers' counters."""
        self.runs: list[workload.Run] = []
        self.without_deadline = 0
        """The highest number of live records without a deadline that was ever seen. It should be 0."""
        self._standing, self._metrics = standing, metrics
        self._reader, self._done = ledger.Reader(ledger_file), set[tuple[str, str]]()
        self._counted_at = self._looked_at = 0.0

    def add(self, started: workload.Run) -> None:
        """Watch a process from now on."""
        self.runs.append(started)
        self._standing.processes = max(self._standing.processes, len(self.runs))
        self._standing.tasks += len(started.workflow.tasks)

    def running(self) -> list[workload.Run]:
        """Return the processes that were not seen to have ended."""
        return [run for run in self.runs if not run.ended]

    def look(self, resources: Resources) -> None:
        """Read which processes have ended, and every COUNT_EVERY seconds also accepted values and missing deadlines."""
        with suppress(StoreUnavailable), time_limit(LOOK_TIMEOUT):  # because the demo may have made MongoDB unavailable
            workload.look(resources, self.running())
            if time.monotonic() > self._looked_at + COUNT_EVERY:
                self._looked_at = time.monotonic()
                workload.look_at_values(resources, self.running()[:MAX_READ])
                self.look_for_deadlines(resources)

    def look_at_the_end(self, resources: Resources) -> None:
        """Read all processes once more, with majority read concern, after all members have caught up. Nothing that was
        accepted or ended may have changed."""
        resources.store.catch_up(CATCH_UP_TIMEOUT)
        workload.look(resources, self.runs)
        workload.look_at_values(resources, self.runs)
        self.look_for_deadlines(resources)

    def look_for_deadlines(self, resources: Resources) -> None:
        """Count live records without a deadline."""
        counts = resources.store.overview.without_deadline()
        self.without_deadline = max(self.without_deadline, sum(counts.values()))

    def standing(self, *, kills: int, faults: int) -> DemoFigures:
        """Return how far the demo is, with new lines of the ledger and new counts of the workers."""
        figures = self._standing
        for line in self._reader.new_lines():
            if not line.final:
                figures.executions += 1
                self._done.add((line.process, line.task))
        if time.monotonic() > self._counted_at + COUNT_EVERY:
            self._counted_at = time.monotonic()
            figures.counts = Counts.read(self._metrics)
        figures.kills, figures.faults, figures.done = kills, faults, len(self._done)
        figures.finished = len(self.runs) - len(self.running())
        return figures
