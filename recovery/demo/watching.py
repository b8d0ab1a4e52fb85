"""What is seen of a demo from outside while it runs: in the database, in the ledger, in the workers' counters."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from recovery.demo import ledger, workload
from recovery.demo.demo_report import Counts
from recovery.demo.screen import Standing
from recovery.engine import Resources
from recovery.errors import StoreUnavailable
from recovery.store.views.overview import time_limit

LOOK_TIMEOUT = 2.0
MAX_READ = 200
"""Running processes whose values are read again and again, so that what is accepted and changed is seen."""
CATCH_UP_TIMEOUT = 60.0
"""Seconds in which members that were killed have come back and have all."""
COUNT_EVERY = 1.0


class Watch:
    """The processes of a demo, and how far they are."""

    def __init__(self, standing: Standing, ledger_file: Path, metrics: Path) -> None:
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

    def standing(self, *, kills: int, faults: int) -> Standing:
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
