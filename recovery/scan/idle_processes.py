"""The Graph scanner and the Process scanner: processes in which nothing has changed for long.

Both judge whole processes by the same rules. They differ in whose deadline they check. A healthy process is checked
again when it is twice as old.
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
        """Read the first of these processes, as many as fit into memory.

        Ids that are not texts are returned as damage.
        """
        store = self.resources.store
        ids = [process_id for process_id in process_ids if isinstance(process_id, str)]
        invalid_ids = (process_id for process_id in process_ids if not isinstance(process_id, str))
        damaged = [
            DamagedRecord(process_id, f"{process_id!r:.100}: an id that is no text") for process_id in invalid_ids
        ]
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
        self._with_findings = set[str]()

    def find(self) -> Page[Snapshot]:
        self._with_findings.clear()
        return self.read(self.resources.store.graphs.overdue(self.page))

    def judge(self, page: Page[Snapshot]) -> Diagnosis:
        diagnosis = super().judge(page)
        self._with_findings |= {finding.process_id for finding in diagnosis.findings}
        return diagnosis

    def postpone(self, record: Any) -> None:
        resources = self.resources
        resources.store.graphs.postpone(_process_of(record), resources.settings.idle_timeout)

    def postpone_healthy(self, page: Sequence[Snapshot]) -> None:
        # A process that was just repaired may continue, so its graph keeps a deadline for one more check.
        at_rest = [
            snapshot.process_id
            for snapshot in page
            if _is_at_rest(snapshot) and snapshot.process_id not in self._with_findings
        ]
        if at_rest:
            self.resources.store.clear_graph_deadlines(at_rest, overdue=True)
        self.resources.store.graphs.postpone_idle([snapshot.process_id for snapshot in page])


class ProcessScanner(_WholeProcesses):
    """Looks at processes whose own deadline is past: once after the start, and rarely after that."""

    name = "processes"

    def find(self) -> Page[Snapshot]:
        store = self.resources.store
        without_deadline = store.processes.without_deadline(self.page)
        overdue = (
            store.processes.overdue(self.page - len(without_deadline)) if len(without_deadline) < self.page else []
        )
        return self.read([*without_deadline, *overdue])

    def postpone(self, record: Any) -> None:
        resources = self.resources
        resources.store.processes.postpone(_process_of(record), resources.settings.idle_timeout)

    def postpone_healthy(self, page: Sequence[Snapshot]) -> None:
        store = self.resources.store
        ids = [snapshot.process_id for snapshot in page]
        store.processes.postpone_idle(ids, store.preferences.process_timeouts())


def _process_of(record: Any) -> Any:
    return split_record_id(record)[0] if isinstance(record, str) else record


def _is_at_rest(snapshot: Snapshot) -> bool:
    """Return whether a process has ended and no decision of it has a deadline.

    False for an aborted process, because its abort clears the deadline of the graph as its last step.
    """
    if snapshot.process is None or snapshot.process.state in (ProcessState.RUNNING, ProcessState.ABORTED):
        return False
    return not any(decision.recovery_time for decision in snapshot.decisions.values())
