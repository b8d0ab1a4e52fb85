"""What is asked of the servers for scrapes, each a function of the store:

    recovery_oldest_overdue_seconds{record}    how long the longest overdue record is past its deadline; 0: none is
    recovery_overdue{record}                   how many are, COUNT_LIMIT at most
    recovery_workers_alive                     workers whose heartbeat is not overdue
    recovery_spark_workers                     of them those that serve Spark; only if one ever has
    recovery_hung_slots_total{actor}           slots that were freed of attempts that hung
    recovery_scanner_last_run_seconds{scanner} how long ago a scanner's last run was noted
    recovery_schedules_disabled{type}          schedules that their failures disabled
    recovery_processes{type,state}             processes that run or are broken, by the last census
    recovery_live_without_deadline{record}     what nobody would look at, COUNT_LIMIT at most
    recovery_operations_open{kind,state}       operations that are under way
    recovery_operation_done{operation,kind}    how many processes each of them is done with, in its phase
    recovery_operation_found{operation,kind}   and how many it has found something on
    recovery_operation_share{operation,kind}   how much of the phase is done, 0 to 1
    recovery_queued_unserved{actor}            tasks, queued or to be, of an actor that no worker which lives serves
    recovery_blocked_seconds{actor}            how long an actor that is blocked has been so
    recovery_queue_consumers{queue}            workers that live and serve it
    recovery_queue_oldest_seconds{queue}       how long its oldest task has been queued; 0: none is
    recovery_markers{type}                     markers that are there
    recovery_queue_depth{queue}                messages that wait in Redis

They cost what is overdue or lacks a deadline, as many seeks as there are actors, the markers, the operations, and a
count of what waits for nobody; never what is live. What would cost that is counted by the census, for all workers
together.
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
"""Overdue records of a kind that are counted. How many there are in a storm nobody has to know exactly."""
CENSUS_BELIEVED = 900.0
"""Seconds: longer than lies between two of the slowest."""
OPERATIONS = 100
"""Operations that are reported: those that were ordered last."""


class Messages(Protocol):
    """The methods of the broker that are needed here."""

    def check(self) -> None:
        """Raise unless the server answers."""

    def depths(self, queues: Iterable[str]) -> Mapping[str, int]:
        """How many messages wait in each queue."""


def workers(store: Store) -> list[Metric]:
    """Return how many workers are alive."""
    alive = len(store.overview.workers_alive())
    return [GaugeMetricFamily("recovery_workers_alive", "Workers that live.", value=alive)]


def spark_workers(store: Store) -> list[Metric]:
    """Return how many live workers serve Spark; nothing if none ever has, because then none is missed."""
    serving = store.workers.spark_workers()
    if serving is None:
        return []
    return [GaugeMetricFamily("recovery_spark_workers", "Workers that live and serve Spark.", value=serving)]


def scanners(store: Store) -> list[Metric]:
    """Return how long ago each scanner ran last."""
    ago = _gauge("recovery_scanner_last_run_seconds", "How long ago a scanner ran last.", "scanner")
    runs, now = store.scanners.all(), store.now()
    for name, run in runs.items():
        if run.ran_at is not None:
            ago.add_metric([name], max(0.0, (now - run.ran_at).total_seconds()))
    return [ago]


def hung(store: Store) -> list[Metric]:
    """Slots that were freed of attempts that hung, by actor. An actor that never hung has 0: its first is an increase.

    Asked for, not counted: where threads hang their worker ends, and what it had counted would end with it.
    """
    freed = CounterMetricFamily("recovery_hung_slots", "Slots freed of attempts that hung.", labels=["actor"])
    counts = dict.fromkeys(store.actors.stored(), 0) | {one.id: one.slots for one in store.hung.freed()}
    for actor, slots in sorted(counts.items()):
        freed.add_metric([actor], slots)
    return [freed]


def schedules(store: Store) -> list[Metric]:
    """Return how many schedules of each process type are disabled."""
    gauge = _gauge("recovery_schedules_disabled", "Schedules that their failures disabled.", "type")
    disabled: Counter[str] = Counter()
    for one in store.schedules.all().values():
        disabled[one.type] += one.disabled is not None
    for process_type, number in sorted(disabled.items()):
        gauge.add_metric([process_type], number)
    return [gauge]


def oldest_overdue(store: Store) -> list[Metric]:
    """Return how long the longest overdue record of each collection is past its deadline."""
    overdue = _gauge("recovery_oldest_overdue_seconds", "How long the longest overdue record is past it.", "record")
    for collection in DEADLINES:
        overdue.add_metric([collection], store.overview.oldest_overdue(collection))
    return [overdue]


def overdue(store: Store) -> list[Metric]:
    """Return how many records of each collection are overdue."""
    gauge = _gauge("recovery_overdue", f"Records past their deadline; {COUNT_LIMIT:,} at most are counted.", "record")
    for collection, count in store.overview.overdue(COUNT_LIMIT).items():
        gauge.add_metric([collection], count)
    return [gauge]


def census(store: Store) -> list[Metric]:
    """Return the processes by type and state, as the last census counted them; nothing if that is too old."""
    last = store.censuses.last(CENSUS_BELIEVED)
    if last is None:
        return []
    # With a 0 for types of which there are none now: a series that vanishes looks like one that could not be asked.
    states = [state.value for state in UNENDED_PROCESSES]
    counts = {(name, state): 0 for name in store.process_types.all() for state in states}
    counts |= {(line.type, line.state): line.count for line in last.processes}
    processes = _gauge("recovery_processes", "Processes that run or are broken.", "type", "state")
    for labels, count in sorted(counts.items()):
        processes.add_metric(list(labels), count)
    return [processes]


def without_deadline(store: Store) -> list[Metric]:
    """Return how many live records have no deadline, because another program spoilt them."""
    without = _gauge("recovery_live_without_deadline", "Live records that nobody would look at.", "record")
    for collection, count in store.overview.missing_deadlines(COUNT_LIMIT).items():
        without.add_metric([collection], count)
    return [without]


def operations(store: Store) -> list[Metric]:
    """Return the operations that are under way, and the progress of each."""
    count = _gauge("recovery_operations_open", "Operations that are under way.", "kind", "state")
    done = _gauge("recovery_operation_done", "Processes that it is done with, in its phase.", "operation", "kind")
    found = _gauge("recovery_operation_found", "Processes that it has found something on.", "operation", "kind")
    share = _gauge("recovery_operation_share", "How much of its phase is done, 0 to 1.", "operation", "kind")
    under_way = store.operations.newest(OPERATIONS, UNDER_WAY)
    for (kind, state), number in sorted(Counter((one.kind.value, one.state.value) for one in under_way).items()):
        count.add_metric([kind, state], number)
    for one in under_way:
        parts = store.operation_ranges.all(one.id, one.phase)
        totals = sum((part.totals for part in parts), Totals())
        labels = [str(one.id), one.kind.value]
        done.add_metric(labels, one.seen(totals))
        expected = one.expected()
        found.add_metric(labels, totals.found if expected is None else expected)
        share.add_metric(labels, one.share(totals, parts))
    return [count, done, found, share]


def markers(store: Store) -> list[Metric]:
    """Return the markers of each process type, with a 0 for types that ask for markers and have none."""
    there = _gauge("recovery_markers", "Markers that are there.", "type")
    asking = {name: 0 for name, one in store.process_types.all().items() if one.keeps_markers}
    for name, number in (asking | store.markers.counts()).items():
        there.add_metric([name], number)
    return [there]


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
"""Questions whose cost grows only with the number of workers, actors, types and operations."""


def depths(broker: Messages, queues: Iterable[str]) -> list[Metric]:
    """Return how many messages wait in each queue."""
    depth = _gauge("recovery_queue_depth", "Messages that wait in Redis.", "queue")
    for queue, messages in broker.depths(queues).items():
        depth.add_metric([queue], messages)
    return [depth]


def of_queues(actors: Mapping[str, ActorQueue]) -> list[Metric]:
    """Return what waits for each actor, and which workers serve it."""
    unserved = _gauge("recovery_queued_unserved", "Tasks, queued or to be, that no worker that lives serves.", "actor")
    blocked = _gauge("recovery_blocked_seconds", "How long an actor has been blocked.", "actor")
    consumers = _gauge("recovery_queue_consumers", "Workers that live and serve a queue.", "queue")
    oldest = _gauge("recovery_queue_oldest_seconds", "How long the oldest task of a queue has been queued.", "queue")
    for name, queue in actors.items():
        # With a 0 for those that are served.
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
