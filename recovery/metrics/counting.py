"""Counting what concerns many at once: each under its own actor or process type.

How long a process took is told by this machine's clock against the database's, which its start was stamped with:
`recovery doctor` tells of clocks that are apart. To ask the database for the time would cost each end a round trip.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from recovery.metrics import registry
from recovery.records import Process, ProcessState
from recovery.records.ids import started_at

LOST = ("MESSAGE_LOST", "WORK_TIMEOUT", "WORKER_LOST")
"""Rules that find what was lost."""


def begin(actors: Iterable[str]) -> None:
    """Have at 0, from the start, what these actors may lose: else the first loss makes the series, and Prometheus can't
    see that it grew."""
    for actor in actors:
        registry.ACTOR_WORK_TIMEOUTS.labels(actor)
        for rule in LOST:
            for metric in (registry.FINDINGS, registry.REPAIRS, registry.REQUEUES):
                metric.labels(rule, actor)


def requeued(reason: str, actors: Iterable[str]) -> None:
    """A task of each of these actors was queued again."""
    for actor, count in Counter(actors).items():
        registry.REQUEUES.labels(reason, actor).inc(count)


def finished_alone(types: Mapping[str, str]) -> None:
    """These processes of one task, {id: type}, finished. When one was started its id tells: by the clock of whoever
    started it."""
    now = time.time()
    for process_type, count in Counter(types.values()).items():
        registry.PROCESSES_ENDED.labels(process_type, ProcessState.FINISHED.value).inc(count)
    for process_id, process_type in types.items():
        took = now - started_at(process_id).timestamp()
        registry.PROCESS_SECONDS.labels(process_type, ProcessState.FINISHED.value).observe(max(0.0, took))


def ended(state: ProcessState, processes: Iterable[Process]) -> None:
    """These processes, as they were before, ended so."""
    now = time.time()
    for process in processes:
        registry.PROCESSES_ENDED.labels(process.type, state.value).inc()
        if (began := process.restarted_at or process.started_at) is not None:
            registry.PROCESS_SECONDS.labels(process.type, state.value).observe(max(0.0, now - began.timestamp()))
