"""The Worker scanner: workers that are gone, and what they had claimed.

A worker is gone if it was seen to be silent for longer than it may, or if a worker of the same host sees that its
process is. Its claims are requeued at once, without waiting for their own deadlines (WORKER_LOST), what it had finished
is applied, and what it had leased of operators' operations others may take. Only then is its record removed: cut off in
between, the next scan goes on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recovery import metrics
from recovery.engine import Outbox, Resources
from recovery.records import Worker
from recovery.repair import Diagnosis, Done, Repairer, look_around
from recovery.rules import judge_decision
from recovery.scan.scanner import Page, Scanner


class WorkerScanner(Scanner[Worker]):
    """Looks at workers that have been silent for longer than they may.

    `silent` tells which, and the deadlines that stand in their records. Who tells it watched them for a whole heartbeat
    timeout by a clock of its own, up and served by the database: until then silence proves nothing, since the database
    may have been away for all, or its clock may have stepped.
    """

    name = "workers"
    page = 100

    def __init__(self, resources: Resources, outbox: Outbox, silent: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__(resources, outbox)
        self._silent = silent

    def find(self) -> Page[Worker]:
        silent = dict(list(self._silent().items())[: self.page])
        if not silent:
            return Page()
        began = time.monotonic()
        found = self.resources.store.workers.unchanged(silent)
        # The query itself may have waited for a new primary, while all others waited too: ask again.
        slow = time.monotonic() - began > self.resources.settings.heartbeat_interval
        still = self._silent()
        if slow:
            return Page()
        return Page([w for w in found.records if w.id in still], [d for d in found.damaged if d.record in still])

    def key(self, item: Worker) -> str:
        return item.id

    def postpone(self, record: Any) -> None:
        if isinstance(record, str):
            rescue(self.resources, self.repairer, [record])
        self.resources.store.workers.remove([record])  # a living one writes it anew with its next heartbeat

    def judge(self, page: Page[Worker]) -> Diagnosis:
        return _claims(self.resources, [worker.id for worker in page.items])

    def postpone_healthy(self, page: Sequence[Worker]) -> None:
        def forgotten(count: int) -> None:
            metrics.WORKERS_LOST.inc(count)
            if count:
                self.resources.store.scanners.lost([worker.name for worker in page])

        rescue(self.resources, self.repairer, [worker.id for worker in page], forgotten)


def rescue(
    resources: Resources, repairer: Repairer, lost: Sequence[str], forgotten: Callable[[int], object] | None = None
) -> Done:
    """Take everything from workers that are gone, page by page, then forget them. `forgotten` is told how many had a
    record."""
    done: Done = Counter()
    before: set[str] = set()
    _free_operations(resources, lost)
    while lost:
        claims = _claims(resources, lost)
        if not claims.findings:
            removed = resources.store.forget_workers(lost)
            if forgotten is not None:
                forgotten(removed)
            break
        if (found := {finding.record for finding in claims.findings}) == before:
            break  # what is left waits for something else, such as a parent's apply; its deadline stands
        before = found
        done += repairer.repair(claims.findings, claims.around).done
    return done


def _free_operations(resources: Resources, lost: Sequence[str]) -> None:
    """Let others take the ranges of operations that these workers had leased, without waiting for the leases' end."""
    if lost and (at_work := resources.store.operations.at_work()):
        resources.store.operation_ranges.take_back([operation.id for operation in at_work], lost)


def _claims(resources: Resources, lost: Sequence[str]) -> Diagnosis:
    held = resources.store.decisions.held_by(lost, resources.settings.scan_batch)
    around = look_around(resources, lost_workers=lost)
    return Diagnosis([f for decision in held if (f := judge_decision(decision, around))], around)
