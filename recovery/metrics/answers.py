"""Queries of the servers for scrapes, each a function of the store:

    recovery_oldest_overdue_seconds{record}    how far the longest overdue record is past its deadline; 0 if none is
    recovery_overdue{record}                   number of overdue records, at most COUNT_LIMIT
    recovery_workers_alive                     workers whose heartbeat is not overdue
    recovery_spark_workers                     live workers that serve Spark; only if one ever has
    recovery_hung_slots_total{actor}           slots that were freed of attempts that hung
    recovery_scanner_last_run_seconds{scanner} time since the noted last run of a scanner
    recovery_schedules_disabled{type}          schedules that were disabled by failures
    recovery_processes{type,state}             running and broken processes, by the last census
    recovery_live_without_deadline{record}     live records without a deadline, at most COUNT_LIMIT
    recovery_operations_open{kind,state}       operations under way
    recovery_operation_done{operation,kind}    processes that the operation has finished in its phase
    recovery_operation_found{operation,kind}   processes with a match or finding; while applied: all of its processes
    recovery_operation_share{operation,kind}   fraction of the phase that is done, 0 to 1
    recovery_queued_unserved{actor}            queued and future tasks of an actor that no live worker serves
    recovery_blocked_seconds{actor}            time since an actor was blocked
    recovery_queue_consumers{queue}            live workers that serve a queue
    recovery_queue_oldest_seconds{queue}       time that the oldest task has been queued; 0 if none is
    recovery_markers{type}                     existing markers
    recovery_queue_depth{queue}                messages in Redis

The cost grows with the overdue records, the records without a deadline, the actors (one seek each), the markers, the
operations, and the tasks that no worker serves. It does not grow with the number of live records: the census counts
these, once for all workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from recovery.records import UNENDED_PROCESSES, Totals
from recovery.records.operation import UNDER_WAY
from recovery.store import ActorQueue, Store
from recovery.store.views.overview import DEADLINES

COUNT_LIMIT = 10_000
"""Maximum number of overdue records of a kind that are counted. The exact number does not matter above this."""
CENSUS_BELIEVED = 900.0
"""Maximum age of a census in seconds. It is longer than the interval between the slowest censuses."""
OPERATIONS = 100
"""Maximum number of operations that are reported: the latest ones."""


class Messages(Protocol):
    """The methods of the broker that metrics need."""

    def check(self) -> None:
        """Raise an error unless the server answers."""

    def depths(self, queues: Iterable[str]) -> Mapping[str, int]:
        """Return the number of messages in each queue."""


def workers(store: Store) -> list[Metric]:
    """Return how many workers are alive."""
    alive = len(store.overview.workers_alive())
    return [GaugeMetricFamily("recovery_workers_alive", "Live workers.", value=alive)]


def spark_workers(store: Store) -> list[Metric]:
    """Return how many live workers serve Spark. Return nothing if none ever has, because then none is missing."""
    serving = store.workers.spark_workers()
    if serving is None:
        return []
    return [GaugeMetricFamily("recovery_spark_workers", "Live workers that serve Spark.", value=serving)]


def scanners(store: Store) -> list[Metric]:
    """Return how long ago each scanner ran last."""
    ago = _gauge("recovery_scanner_last_run_seconds", "Seconds since a scanner ran last.", "scanner")
    runs, now = store.scanners.all(), store.now()
    for name, run in runs.items():
        if run.ran_at is not None:
            ago.add_metric([name], max(0.0, (now - run.ran_at).total_seconds()))
    return [ago]


def hung(store: Store) -> list[Metric]:
    """Return the slots that were freed of attempts that hung, by actor.

    An actor that never hung has 0, so that its first hung attempt is an increase. The number is queried rather than
    counted in memory, because a worker whose threads hang ends, and would lose its count.
    """
    freed = CounterMetricFamily("recovery_hung_slots", "Slots freed of attempts that hung.", labels=["actor"])
    counts = dict.fromkeys(store.actors.stored(), 0) | {actor.id: actor.slots for actor in store.hung.freed()}
    for actor, slots in sorted(counts.items()):
        freed.add_metric([actor], slots)
    return [freed]


def schedules(store: Store) -> list[Metric]:
    """Return how many schedules of each process type are disabled."""
    gauge = _gauge("recovery_schedules_disabled", "Schedules that were disabled by failures.", "type")
    disabled: Counter[str] = Counter()
    for schedule in store.schedules.all().values():
        disabled[schedule.type] += schedule.disabled is not None
    for process_type, number in sorted(disabled.items()):
        gauge.add_metric([process_type], number)
    return [gauge]


def oldest_overdue(store: Store) -> list[Metric]:
    """Return how far the longest overdue record of each collection is past its deadline."""
    overdue = _gauge(
        "recovery_oldest_overdue_seconds", "Seconds that the longest overdue record is past its deadline.", "record"
    )
    for collection in DEADLINES:
        overdue.add_metric([collection], store.overview.oldest_overdue(collection))
    return [overdue]


def overdue(store: Store) -> list[Metric]:
    """Return how many records of each collection are overdue."""
    gauge = _gauge("recovery_overdue", f"Records past their deadline, counted up to {COUNT_LIMIT:,}.", "record")
    for collection, count in store.overview.overdue(COUNT_LIMIT).items():
        gauge.add_metric([collection], count)
    return [gauge]


def census(store: Store) -> list[Metric]:
    """Return the processes by type and state from the last census, or nothing if that is too old."""
    last = store.censuses.last(CENSUS_BELIEVED)
    if last is None:
        return []
    # Types without processes get a 0, because a series that vanishes looks like a failed query.
    states = [state.value for state in UNENDED_PROCESSES]
    counts = {(name, state): 0 for name in store.process_types.all() for state in states}
    counts |= {(line.type, line.state): line.count for line in last.processes}
    processes = _gauge("recovery_processes", "Running and broken processes.", "type", "state")
    for labels, count in sorted(counts.items()):
        processes.add_metric(list(labels), count)
    return [processes]


def without_deadline(store: Store) -> list[Metric]:
    """Return how many live records have no deadline, because another program damaged them."""
    without = _gauge(
        "recovery_live_without_deadline", "Live records without a deadline, which no scanner would find.", "record"
    )
    for collection, count in store.overview.missing_deadlines(COUNT_LIMIT).items():
        without.add_metric([collection], count)
    return [without]


def operations(store: Store) -> list[Metric]:
    """Return the operations that are under way, and the progress of each."""
    count = _gauge("recovery_operations_open", "Operations under way.", "kind", "state")
    done = _gauge(
        "recovery_operation_done", "Processes that the operation has finished in its phase.", "operation", "kind"
    )
    matching = _gauge(
        "recovery_operation_found",
        "Processes with a match or finding; while the operation is applied, all of its processes.",
        "operation",
        "kind",
    )
    share = _gauge("recovery_operation_share", "Fraction of the phase that is done, 0 to 1.", "operation", "kind")
    under_way = store.operations.newest(OPERATIONS, UNDER_WAY)
    for (kind, state), number in sorted(
        Counter((operation.kind.value, operation.state.value) for operation in under_way).items()
    ):
        count.add_metric([kind, state], number)
    for operation in under_way:
        parts = store.operation_ranges.all(operation.id, operation.phase)
        totals = sum((part.totals for part in parts), Totals())
        labels = [str(operation.id), operation.kind.value]
        done.add_metric(labels, operation.seen(totals))
        expected = operation.expected()
        matching.add_metric(labels, totals.found if expected is None else expected)
        share.add_metric(labels, operation.share(totals, parts))
    return [count, done, matching, share]


def markers(store: Store) -> list[Metric]:
    """Return the markers of each process type, with 0 for types that ask for markers and have none."""
    gauge = _gauge("recovery_markers", "Existing markers.", "type")
    types_with_markers = {
        name: 0 for name, process_type in store.process_types.all().items() if process_type.keeps_markers
    }
    for name, number in (types_with_markers | store.markers.counts()).items():
        gauge.add_metric([name], number)
    return [gauge]


CHEAP: Sequence[Callable[[Store], list[Metric]]] = (
    workers,
    scanners,
    hung,
    schedules,
    oldest_overdue,
    without_deadline,
    markers,
    census,
    operations,
)
"""Queries whose cost grows only with the number of workers, actors, types, markers and operations."""


def depths(broker: Messages, queues: Iterable[str]) -> list[Metric]:
    """Return how many messages wait in each queue."""
    depth = _gauge("recovery_queue_depth", "Messages in Redis.", "queue")
    for queue, messages in broker.depths(queues).items():
        depth.add_metric([queue], messages)
    return [depth]


def of_queues(actors: Mapping[str, ActorQueue]) -> list[Metric]:
    """Return the metrics of each actor's queue: waiting tasks, the workers that serve it, and whether it is blocked."""
    unserved = _gauge("recovery_queued_unserved", "Queued and future tasks that no live worker serves.", "actor")
    blocked = _gauge("recovery_blocked_seconds", "Seconds since an actor was blocked.", "actor")
    consumers = _gauge("recovery_queue_consumers", "Live workers that serve a queue.", "queue")
    oldest = _gauge(
        "recovery_queue_oldest_seconds", "Seconds that the oldest task of a queue has been queued.", "queue"
    )
    for name, queue in actors.items():
        # A queue that is served gets a 0.
        unserved.add_metric([name], _tasks(queue) if queue.waits_for_nobody else 0)
        consumers.add_metric([name], len(queue.workers))
        oldest.add_metric([name], queue.waiting_seconds or 0.0)
        if queue.blocked_seconds is not None:
            blocked.add_metric([name], queue.blocked_seconds)
    return [unserved, blocked, consumers, oldest]


def _tasks(queue: ActorQueue) -> int:
    return (queue.tasks or 0) + queue.to_come.delayed + queue.to_come.after_others


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=list(labels))
