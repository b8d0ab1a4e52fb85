"""What is seen of a demo from outside while it runs: in the database, in the ledger, in the workers' counters; and of
a process that has not ended when the time is over, whether it goes on or is stuck.

It goes on while what lives of it has a deadline that is to come, or that is past for no longer than scanners may take:
somebody looks at it. It is stuck if that is not so, or if nothing of it is queued or worked on and nothing has happened
for longer than the time in which its graph is looked at.
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
"""Scan intervals that a deadline may be past on a busy machine, on top of a heartbeat timeout: so long scanners hold
back after an outage."""
SHOWN = 3
"""Findings that are told."""
MAX_TEXT = 300


def standing(resources: Resources, process_id: str) -> str:
    """'still running' or 'stuck', and why. Ask while there are workers."""
    try:
        examined = process_check.look(resources, process_id)
        now = resources.store.now()
    except ProcessNotFound:
        return "gone: there is no record of it"
    except StoreError as error:
        return f"running, as far as is known: MongoDB could not be asked ({error})"[:MAX_TEXT]
    return judge(examined.snapshot, examined.findings, now, resources.settings)


def judge(snapshot: Snapshot, findings: Sequence[Finding], now: datetime, settings: Settings) -> str:
    """The same of a process as it was read at `now`."""
    if snapshot.process is not None and snapshot.process.state is not ProcessState.RUNNING:
        return f"{snapshot.process.state} since a moment ago"
    allowed = settings.heartbeat_timeout + SCANS * settings.scan_interval
    found = "".join(f"; {finding.rule}: {finding.evidence}" for finding in findings[:SHOWN])
    deadlines = process_check.deadlines(snapshot)
    if not deadlines:
        return f"stuck: nothing of it has a deadline{found}"
    first = deadlines[0]
    overdue = (now - first.at).total_seconds()
    if overdue > allowed:
        return f"stuck: {first.record} ({first.what}) is past its deadline for {overdue:.0f} s{found}"
    quiet = (now - max(_happened(snapshot), default=now)).total_seconds()
    at_work = [decision for decision in snapshot.decisions.values() if decision.recovery_time]
    if not at_work and quiet > settings.idle_timeout + allowed:
        return f"stuck: nothing of it is queued or worked on, and nothing has happened for {quiet:.0f} s{found}"
    done = sum(decision.state is DecisionState.FINISHED for decision in snapshot.decisions.values())
    return (
        f"still running: {done} of {len(snapshot.decisions)} tasks are done, the last thing happened "
        f"{quiet:.1f} s ago, and {first.record} ({first.what}) is looked at in {max(0.0, -overdue):.1f} s{found}"
    )


def _happened(snapshot: Snapshot) -> Iterator[datetime]:
    """When something happened that brings a process on."""
    for decision in snapshot.decisions.values():
        if decision.queued_at:
            yield decision.queued_at
        if decision.outcome and decision.outcome.finished_at:
            yield decision.outcome.finished_at
    if snapshot.process and snapshot.process.started_at:
        yield snapshot.process.started_at


LOOK_TIMEOUT = 2.0
MAX_READ = 200
"""Running processes whose values are read again and again, so that what is accepted and changed is seen."""
CATCH_UP_TIMEOUT = 60.0
"""Seconds in which members that were killed have come back and have all."""
COUNT_EVERY = 1.0


class DemoWatch:
    """The processes of a demo, and how far they are."""

    def __init__(self, standing: DemoFigures, ledger_file: Path, metrics: Path) -> None:
        """`metrics` is the folder that the workers keep their counters in."""
        self.runs: list[workload.Run] = []
        self.without_deadline = 0
        """The most live records that were ever seen without a deadline. There should never be one."""
        self._standing, self._metrics = standing, metrics
        self._reader, self._done = ledger.Reader(ledger_file), set[tuple[str, str]]()
        self._counted = self._looked = 0.0

    def add(self, started: workload.Run) -> None:
        """Watch a process from now on."""
        self.runs.append(started)
        self._standing.processes = max(self._standing.processes, len(self.runs))
        self._standing.tasks += len(started.workflow.tasks)

    def running(self) -> list[workload.Run]:
        """Those that have not ended, as far as it was seen."""
        return [run for run in self.runs if not run.ended]

    def look(self, resources: Resources) -> None:
        """See which processes have ended, and now and then what was accepted, and that everything has a deadline."""
        with suppress(StoreUnavailable), time_limit(LOOK_TIMEOUT):  # if it is away, we have brought that about
            workload.look(resources, self.running())
            if time.monotonic() > self._looked + COUNT_EVERY:
                self._looked = time.monotonic()
                workload.look_at_values(resources, self.running()[:MAX_READ])
                self.look_for_deadlines(resources)

    def look_at_the_end(self, resources: Resources) -> None:
        """See all once more, as a majority has it: nothing that was accepted or ended may have changed since."""
        resources.store.catch_up(CATCH_UP_TIMEOUT)
        workload.look(resources, self.runs)
        workload.look_at_values(resources, self.runs)
        self.look_for_deadlines(resources)

    def look_for_deadlines(self, resources: Resources) -> None:
        """See that everything that lives has a deadline."""
        without = resources.store.overview.without_deadline()
        self.without_deadline = max(self.without_deadline, sum(without.values()))

    def standing(self, *, kills: int, faults: int) -> DemoFigures:
        """How far all is, with what the actors and the workers have told since."""
        now = self._standing
        for line in self._reader.new_lines():
            if not line.final:
                now.executions += 1
                self._done.add((line.process, line.task))
        if time.monotonic() > self._counted + COUNT_EVERY:
            self._counted = time.monotonic()
            now.counts = Counts.read(self._metrics)
        now.kills, now.faults, now.done = kills, faults, len(self._done)
        now.finished = len(self.runs) - len(self.running())
        return now
