"""What the servers are asked for scrapes, since no counter knows it:

    recovery_mongodb_up, recovery_redis_up     1: it answered this worker; 0: it did not
    recovery_oldest_overdue_seconds{record}    how long the longest overdue record is past its deadline; 0: none is
    recovery_workers_alive                     workers whose heartbeat is not overdue
    recovery_hung_slots_total{actor}           slots that were freed of attempts that hung
    recovery_scanner_last_run_seconds{scanner} how long ago a scanner's last run was noted
    recovery_schedules_disabled{type}          schedules that their failures disabled
    recovery_queued_unserved{actor}            tasks, queued or to be, of an actor that no worker which lives serves
    recovery_blocked_seconds{actor}            how long an actor that is blocked has been so
    recovery_markers{type}                     markers that are there
    recovery_queue_depth{queue}                messages that wait in Redis

All but the first two are of the whole cluster, the same from every worker. They cost what is overdue, as many seeks as
there are actors, the markers, and a count of what waits for nobody; never what is live. A server that does not answer
in time leaves out its own, and the rest is served.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from recovery.metrics.slots import freed_slots
from recovery.seldom import Seldom
from recovery.store import ActorQueue, Store
from recovery.store.views.overview import DEADLINES, time_limit

log = logging.getLogger(__name__)

ASK_TIMEOUT = 3.0
"""For all that MongoDB is asked: far below the 10 s after which Prometheus gives up a scrape."""


class Messages(Protocol):
    """The broker, as far as it is needed here."""

    def check(self) -> None:
        """Raise unless the server answers."""

    def depths(self, queues: Iterable[str]) -> Mapping[str, int]:
        """How many messages wait in each queue."""


class Asked(Collector):
    """What the servers say when they are asked."""

    def __init__(self, store: Store, broker: Messages) -> None:
        self._store, self._overview, self._broker = store, store.overview, broker
        self._said = Seldom(log)

    def describe(self) -> list[Metric]:
        """Nothing: else registering would ask the servers."""
        return []

    def collect(self) -> list[Metric]:
        """Of all that answer in time."""
        found: list[Metric] = []
        actors: dict[str, ActorQueue] = {}

        def waiting() -> list[Metric]:
            actors.update(self._store.waiting.by_actor(count_served=False))
            return [_unserved(actors), _blocked(actors)]

        with time_limit(ASK_TIMEOUT):
            if mongodb := self._answers("MongoDB", self._store.now):
                # The dearest last: where the time is not enough it alone is left out.
                asks = (
                    self._workers,
                    self._scanners,
                    self._hung,
                    self._schedules,
                    self._overdue,
                    self._markers,
                    waiting,
                )
                for ask in asks:
                    found += self._asked(ask)
        if redis := self._answers("Redis", self._broker.check):
            found += self._asked(lambda: self._depths(actors))
        return [_up("mongodb", "MongoDB", mongodb), _up("redis", "Redis", redis), *found]

    def _workers(self) -> list[Metric]:
        alive = len(self._overview.workers_alive())
        return [GaugeMetricFamily("recovery_workers_alive", "Workers that live.", value=alive)]

    def _scanners(self) -> list[Metric]:
        ago = GaugeMetricFamily(
            "recovery_scanner_last_run_seconds", "How long ago a scanner ran last.", labels=["scanner"]
        )
        runs, now = self._store.scanners.all(), self._store.now()
        for name, run in runs.items():
            if run.ran_at is not None:
                ago.add_metric([name], max(0.0, (now - run.ran_at).total_seconds()))
        return [ago]

    def _hung(self) -> list[Metric]:
        return [freed_slots(self._store)]

    def _schedules(self) -> list[Metric]:
        gauge = GaugeMetricFamily(
            "recovery_schedules_disabled", "Schedules that their failures disabled.", labels=["type"]
        )
        disabled: Counter[str] = Counter()
        for one in self._store.schedules.all().values():
            disabled[one.type] += one.disabled is not None
        for process_type, number in sorted(disabled.items()):
            gauge.add_metric([process_type], number)
        return [gauge]

    def _overdue(self) -> list[Metric]:
        overdue = GaugeMetricFamily(
            "recovery_oldest_overdue_seconds", "How long the longest overdue record is past it.", labels=["record"]
        )
        for collection in DEADLINES:
            overdue.add_metric([collection], self._overview.oldest_overdue(collection))
        return [overdue]

    def _markers(self) -> list[Metric]:
        """With a 0 for the types that ask for them: a series that vanishes looks like one that could not be asked."""
        there = GaugeMetricFamily("recovery_markers", "Markers that are there.", labels=["type"])
        asking = {name: 0 for name, one in self._store.process_types.all().items() if one.markers}
        for name, number in (asking | self._store.markers.counts()).items():
            there.add_metric([name], number)
        return [there]

    def _depths(self, queues: Iterable[str]) -> list[Metric]:
        depth = GaugeMetricFamily("recovery_queue_depth", "Messages that wait in Redis.", labels=["queue"])
        for queue, messages in self._broker.depths(queues).items():
            depth.add_metric([queue], messages)
        return [depth]

    def _answers(self, server: str, ask: Callable[[], object]) -> bool:
        try:
            ask()
        except Exception as error:  # whatever it is, the rest must be served
            self._said.warning("metrics without %s's: %s", server, error)
            return False
        return True

    def _asked(self, ask: Callable[[], list[Metric]]) -> list[Metric]:
        try:
            return ask()
        except Exception as error:  # the same; the next scrape asks again
            self._said.warning("metrics without some that could not be asked: %s", error)
            return []


def _unserved(actors: Mapping[str, ActorQueue]) -> Metric:
    """With a 0 for those that are served: a series that vanishes looks like one that could not be asked."""
    metric = GaugeMetricFamily(
        "recovery_queued_unserved", "Tasks, queued or to be, that no worker that lives serves.", labels=["actor"]
    )
    for name, queue in actors.items():
        metric.add_metric([name], _tasks(queue) if queue.waits_for_nobody else 0)
    return metric


def _tasks(queue: ActorQueue) -> int:
    return (queue.tasks or 0) + queue.to_come.delayed + queue.to_come.after_others


def _blocked(actors: Mapping[str, ActorQueue]) -> Metric:
    metric = GaugeMetricFamily("recovery_blocked_seconds", "How long an actor has been blocked.", labels=["actor"])
    for name, queue in actors.items():
        if queue.blocked_seconds is not None:
            metric.add_metric([name], queue.blocked_seconds)
    return metric


def _up(name: str, server: str, answered: bool) -> Metric:
    return GaugeMetricFamily(f"recovery_{name}_up", f"Whether {server} answered this worker.", value=int(answered))
