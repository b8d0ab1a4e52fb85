"""Handing requeued decisions over to workers: their messages, their graphs' new deadlines, and what is counted.

The database writes the graphs while messages are made here. A scanner that has more pages goes on to the next one
meanwhile (`ahead`). Cut off, the decisions are queued and MESSAGE_LOST finds them.

Metrics: recovery_requeues by rule and actor, recovery_requeue_lag_seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from recovery import metrics, tracing
from recovery.engine import Resources, push
from recovery.metrics import counting
from recovery.records import Decision
from recovery.records.ids import split_record_id
from recovery.rules import Finding, Rule
from recovery.store import Queued


class HandOver:
    """Hands over one batch after the other."""

    def __init__(self, resources: Resources) -> None:
        self._resources, self._claims = resources, resources.store.decisions.claims
        self._beside: ThreadPoolExecutor | None = None
        self._under_way: list[Future[None]] = []

    def __call__(self, rule: Rule, findings: Sequence[Finding], queued: Sequence[Queued]) -> None:
        """Hand over what was queued because of `findings`. Raises StoreError, within `ahead` a batch later."""
        if not queued:
            return
        if self._beside is not None:
            self._begin(self._beside, rule, findings, queued)
            return
        with ThreadPoolExecutor(max_workers=1) as beside:
            touched = beside.submit(self._touch, queued)
            self._push(rule, findings, queued)
            touched.result()

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Within, a batch is handed over while the caller goes on; by the end all are."""
        with ThreadPoolExecutor(max_workers=2) as self._beside:
            try:
                yield
                self._wait()
            finally:
                self._beside, self._under_way = None, []

    def _begin(
        self, beside: ThreadPoolExecutor, rule: Rule, findings: Sequence[Finding], queued: Sequence[Queued]
    ) -> None:
        before = self._under_way
        self._under_way = [beside.submit(self._touch, queued), beside.submit(self._push, rule, findings, queued)]
        for one in before:  # one batch at a time: whoever is faster waits
            one.result()

    def _wait(self) -> None:
        under_way, self._under_way = self._under_way, []
        for one in under_way:
            one.result()

    def _touch(self, queued: Sequence[Queued]) -> None:
        self._resources.store.graphs.touch({split_record_id(one.id)[0] for one in queued})

    def _push(self, rule: Rule, findings: Sequence[Finding], queued: Sequence[Queued]) -> None:
        found = {f.record: f.decision for f in findings if f.decision is not None}
        repairing = tracing.repairing((found[one.id] for one in queued if one.id in found), self._claims)
        push(self._resources, queued)
        counting.requeued(rule.value, [one.actor for one in queued])
        tracing.repaired(rule.value, repairing)
        _observe_lag(found, queued)


def _observe_lag(found: Mapping[str, Decision], queued: Sequence[Queued]) -> None:
    lags = [
        max(0.0, (one.queued_at - deadline).total_seconds())
        for one in queued
        if (decision := found.get(one.id)) is not None and (deadline := decision.recovery_time) is not None
    ]
    counting.observe_all(metrics.LAG, lags)
