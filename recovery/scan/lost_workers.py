"""The Worker scanner: removes workers that are gone, and releases the tasks that they had claimed.

A worker is gone if it was observed to be silent for too long, or if a worker on the same host sees that its process
ended. Its claims are requeued at once (WORKER_LOST), its finished tasks are applied, and its leases of operations'
ranges end. Only then is its record removed. If this is interrupted, the next scan continues.
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
    """Looks at workers that have been silent for too long.

    `silent` returns their ids and the deadlines in their records. The caller must have watched them for a whole
    heartbeat timeout by a monotonic clock while the database was available. Silence alone proves nothing, because the
    database may have been unavailable for all workers, or its clock may have stepped.
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
        started = time.monotonic()
        workers = self.resources.store.workers.unchanged(silent)
        # The query may have waited for a new primary, during which no worker could send a heartbeat. Ask again later.
        was_slow = time.monotonic() - started > self.resources.settings.heartbeat_interval
        still_silent = self._silent()
        if was_slow:
            return Page()
        return Page(
            [worker for worker in workers.records if worker.id in still_silent],
            [damage for damage in workers.damaged if damage.record in still_silent],
        )

    def key(self, item: Worker) -> str:
        return item.id

    def postpone(self, record: Any) -> None:
        if isinstance(record, str):
            rescue(self.resources, self.repairer, [record])
        self.resources.store.workers.remove([record])  # a live worker writes it again with its next heartbeat

    def judge(self, page: Page[Worker]) -> Diagnosis:
        return _claims(self.resources, [worker.id for worker in page.items])

    def postpone_healthy(self, page: Sequence[Worker]) -> None:
        def count_removed(count: int) -> None:
            metrics.WORKERS_LOST.inc(count)
            if count:
                self.resources.store.scanners.lost([worker.name for worker in page])

        rescue(self.resources, self.repairer, [worker.id for worker in page], count_removed)


def rescue(
    resources: Resources, repairer: Repairer, lost: Sequence[str], forgotten: Callable[[int], object] | None = None
) -> Done:
    """Requeue or apply all claims of workers that are gone, page by page, then remove the workers.

    Args:
        resources: The servers and settings.
        repairer: Repairs the claims.
        lost: Ids of the workers.
        forgotten: Called with the number of removed records.

    Returns:
        The number of repairs by rule.
    """
    done: Done = Counter()
    previous: set[str] = set()
    _free_operations(resources, lost)
    while lost:
        claims = _claims(resources, lost)
        if not claims.findings:
            removed = resources.store.forget_workers(lost)
            if forgotten is not None:
                forgotten(removed)
            break
        if (records := {finding.record for finding in claims.findings}) == previous:
            break  # the rest waits for something else, such as a parent's apply, and has its own deadline
        previous = records
        done += repairer.repair(claims.findings, claims.around).done
    return done


def _free_operations(resources: Resources, worker_ids: Sequence[str]) -> None:
    """End the leases that these workers have on ranges of operations, so that others need not wait for their expiry."""
    if worker_ids and (active_operations := resources.store.operations.at_work()):
        resources.store.operation_ranges.take_back([operation.id for operation in active_operations], worker_ids)


def _claims(resources: Resources, worker_ids: Sequence[str]) -> Diagnosis:
    decisions = resources.store.decisions.held_by(worker_ids, resources.settings.scan_batch)
    surroundings = look_around(resources, lost_workers=worker_ids)
    return Diagnosis(
        [finding for decision in decisions if (finding := judge_decision(decision, surroundings))], surroundings
    )
