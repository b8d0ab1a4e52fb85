"""The Graph scanner and the Process scanner: processes in which nothing has changed for long.

Both look at whole processes with the same rules; they differ in whose deadline brought them there. What is
healthy is looked at again when it is twice as old.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recovery.engine import Outbox, Resources
from recovery.errors import DamagedRecord
from recovery.records import ProcessState
from recovery.records.ids import split_record_id
from recovery.repair import Diagnosis, ReadProcesses, diagnose, readings
from recovery.rules import Snapshot
from recovery.scan.scanner import Page, Scanner
from recovery.store import PORTION


class _WholeProcesses(Scanner[Snapshot]):
    page = PORTION

    def key(self, item: Snapshot) -> str:
        return item.process_id

    def read(self, process_ids: Sequence[Any]) -> Page[Snapshot]:
        """The first of these processes, as many as may be held in memory at once."""
        store = self.resources.store
        ids = [one for one in process_ids if isinstance(one, str)]
        others = (one for one in process_ids if not isinstance(one, str))
        damaged = [DamagedRecord(one, f"{one!r:.100}: an id that is no text") for one in others]
        reading = next(readings(store, ids), None)
        if reading is None:
            return Page(damaged=damaged)
        return Page(reading.snapshots, damaged, reading.begun_at, more=len(reading.snapshots) < len(ids))

    def judge(self, page: Page[Snapshot]) -> Diagnosis:
        assert page.begun_at is not None, "a page of processes tells when it was read"
        return diagnose(self.resources, ReadProcesses(page.items, page.begun_at), looks_again=True)


class GraphScanner(_WholeProcesses):
    """Looks at processes whose graph's idle deadline is past."""

    name = "graphs"

    def __init__(self, resources: Resources, outbox: Outbox) -> None:
        super().__init__(resources, outbox)
        self._wrong = set[str]()

    def find(self) -> Page[Snapshot]:
        self._wrong.clear()
        return self.read(self.resources.store.graphs.overdue(self.page))

    def judge(self, page: Page[Snapshot]) -> Diagnosis:
        found = super().judge(page)
        self._wrong |= {finding.process_id for finding in found.findings}
        return found

    def postpone(self, record: Any) -> None:
        resources = self.resources
        resources.store.graphs.postpone(_process_of(record), resources.settings.idle_timeout)

    def postpone_healthy(self, page: Sequence[Snapshot]) -> None:
        # One that was just repaired may go on from there: it is looked at once more.
        over = [one.process_id for one in page if _over(one) and one.process_id not in self._wrong]
        if over:
            self.resources.store.clear_graph_deadlines(over, overdue=True)
        self.resources.store.graphs.postpone_idle([snapshot.process_id for snapshot in page])


class ProcessScanner(_WholeProcesses):
    """Looks at processes whose own deadline is past: after a start, and rarely from then on."""

    name = "processes"

    def find(self) -> Page[Snapshot]:
        store = self.resources.store
        odd = store.processes.without_deadline(self.page)
        overdue = store.processes.overdue(self.page - len(odd)) if len(odd) < self.page else []
        return self.read([*odd, *overdue])

    def postpone(self, record: Any) -> None:
        resources = self.resources
        resources.store.processes.postpone(_process_of(record), resources.settings.idle_timeout)

    def postpone_healthy(self, page: Sequence[Snapshot]) -> None:
        store = self.resources.store
        ids = [snapshot.process_id for snapshot in page]
        store.processes.postpone_idle(ids, store.preferences.process_timeouts())


def _process_of(record: Any) -> Any:
    return split_record_id(record)[0] if isinstance(record, str) else record


def _over(snapshot: Snapshot) -> bool:
    """Whether a process has ended and nothing of it is under way any more. The graph of an aborted one is brought to
    rest by its abort, last of all."""
    if snapshot.process is None or snapshot.process.state in (ProcessState.RUNNING, ProcessState.ABORTED):
        return False
    return not any(decision.recovery_time for decision in snapshot.decisions.values())
