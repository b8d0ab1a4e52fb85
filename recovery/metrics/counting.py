"""Counting events of many tasks or processes at once, each under its own actor or process type.

How long a process took is told by this machine's clock against the database's, which its start was stamped with:
`recovery doctor` tells of clocks that are apart. To ask the database for the time would cost each end a round trip.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from prometheus_client import Histogram

from recovery.metrics import registry
from recovery.records import Process, ProcessState

LOST = ("MESSAGE_LOST", "WORK_TIMEOUT", "WORKER_LOST")
"""Rules that find lost messages, attempts and workers."""


def begin(actors: Iterable[str]) -> None:
    """Have at 0, from the start, what these actors may lose: else the first loss makes the series, and Prometheus can't
    see that it grew. And have each of them told by its name, whatever other names there are in records."""
    actors = list(actors)
    registry.ours(actors)
    for actor in actors:
        registry.ACTOR_WORK_TIMEOUTS.labels(actor)
        for rule in LOST:
            for metric in (registry.FINDINGS, registry.REPAIRS, registry.REQUEUES):
                metric.labels(rule, actor)


def requeued(reason: str, actors: Iterable[str]) -> None:
    """Count that a task of each of these actors was queued again."""
    for actor, count in Counter(actors).items():
        registry.REQUEUES.labels(reason, actor).inc(count)


def observe_all(histogram: Histogram, amounts: Sequence[float]) -> None:
    """What it is to `observe` each of them: prometheus-client looks for the bucket of each anew, under two locks, which
    was a twentieth of what a requeue takes."""
    if amounts:
        histogram._sum.inc(sum(amounts))
    for place, count in Counter(bisect_left(histogram._upper_bounds, one) for one in amounts).items():
        histogram._buckets[place].inc(count)


def ended(state: ProcessState, processes: Iterable[Process]) -> None:
    """Count that these processes, as they were before, ended in this state."""
    now, by_type = time.time(), defaultdict[str, list[Process]](list)
    for process in processes:
        by_type[process.type].append(process)
    for process_type, alike in by_type.items():
        began = [one.restarted_at or one.started_at for one in alike]
        took = [max(0.0, now - moment.timestamp()) for moment in began if moment is not None]
        registry.PROCESSES_ENDED.labels(process_type, state.value).inc(len(alike))
        observe_all(registry.PROCESS_SECONDS.labels(process_type, state.value), took)
