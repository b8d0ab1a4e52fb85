"""The Graph scanner and the Process scanner: processes in which nothing has changed for long.

Both look at whole processes with the same rules; they differ in whose deadline brought them there. What is
healthy is looked at again when it is twice as old.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from recovery.errors import DamagedRecord
from recovery.records import DecisionState, ProcessState
from recovery.records.ids import split_record_id
from recovery.repair import look_around
from recovery.rules import Finding, Snapshot, Surroundings, judge_process
from recovery.scan.scanner import Page, Scanner
from recovery.store import PORTION


class _WholeProcesses(Scanner[Snapshot]):
    page = PORTION
    _as_of: datetime | None = None
    """When the page was begun to be read; see `Surroundings`."""
    _left = False
    """Whether more was found than was read."""

    def key(self, item: Snapshot) -> str:
        return item.process_id

    def read(self, process_ids: Sequence[Any], *, told: bool = False) -> Page[Snapshot]:
        """The first of these processes, as many as may be held in memory at once, to be judged as of now. `told`: as a
        majority has them, for people."""
        store = self.resources.store
        self._as_of = store.now()
        ids = [one for one in process_ids if isinstance(one, str)]
        page = next(store.snapshot_pages(ids, told=told, thorough=ids if told else ()), [])
        self._left = len(page) < len(ids)
        others = (one for one in process_ids if not isinstance(one, str))
        return Page(page, [DamagedRecord(one, f"{one!r:.100}: an id that is no text") for one in others])

    def is_last(self, page: Page[Snapshot]) -> bool:
        return super().is_last(page) and not self._left

    def judge(self, page: Sequence[Snapshot]) -> tuple[list[Finding], Surroundings]:
        queues = {
            decision.actor
            for snapshot in page
            for decision in snapshot.decisions.values()
            if decision.state is DecisionState.QUEUED
        }
        around = replace(look_around(self.resources, queues=queues), as_of=self._as_of)
        return [finding for snapshot in page for finding in judge_process(snapshot, around)], around


class GraphScanner(_WholeProcesses):
    """Looks at processes whose graph's idle deadline is past."""

    name = "graphs"

    def find(self, limit: int) -> Page[Snapshot]:
        return self.read(self.resources.store.graphs.overdue(limit))

    def postpone(self, record: Any) -> None:
        resources = self.resources
        resources.store.graphs.postpone(_process_of(record), resources.settings.idle_timeout)

    def postpone_healthy(self, page: Sequence[Snapshot]) -> None:
        over = [snapshot.process_id for snapshot in page if _over(snapshot)]
        if over:
            self.resources.store.clear_graph_deadlines(over, overdue=True)
        self.resources.store.graphs.postpone_idle([snapshot.process_id for snapshot in page])


class ProcessScanner(_WholeProcesses):
    """Looks at processes whose own deadline is past: after a start, and rarely from then on."""

    name = "processes"

    def find(self, limit: int) -> Page[Snapshot]:
        store = self.resources.store
        odd = store.processes.without_deadline(limit)
        overdue = store.processes.overdue(limit - len(odd)) if len(odd) < limit else []
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
