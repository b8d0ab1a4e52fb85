"""Diagnosis of processes: read the surroundings and whole processes, and judge them by the rules.

Scanners, `recovery check` and the sweep all use these functions.

An empty queue is the evidence that its messages were lost, but requeues fill the queue and hide this evidence from the
next page and from other scanners until workers have drained it. Therefore empty queues are recorded in MongoDB before
anything is pushed (`keep_empty`, `RedisLoss`). A queue that was empty at T contains only messages that were pushed
after T. Their tasks were queued after T too, except for a push that was under way at T (the margin). So tasks in a slow
queue are never requeued, and all lost messages are found, however many pages and scans that takes. A requeued task is
queued later than T, so it is requeued once for each time that the queue was found empty.

An empty queue says nothing about messages that a worker has just fetched and is about to claim. After an outage, the
first slots that start find the queue empty although their messages had waited for long. Therefore T counts only in a
later scan, at least `claim_margin` after it (`Surroundings.empty_at`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock

from recovery.engine import Resources
from recovery.errors import BrokerError
from recovery.queue import Kept
from recovery.records import DecisionState
from recovery.rules import SPOILT, Finding, Snapshot, Surroundings, judge_process, not_judged
from recovery.store import Store

log = logging.getLogger(__name__)

IN_HAND = 0.1
"""Maximum fraction of queued tasks whose messages workers may hold at any time."""


@dataclass(frozen=True, slots=True)
class ReadProcesses:
    """Processes, and the database's time before they were read.

    Changes after that time are not held against them (`Surroundings.as_of`).
    """

    snapshots: Sequence[Snapshot]
    begun_at: datetime


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings on some processes and the surroundings that they were judged by. A repair needs both."""

    findings: list[Finding]
    around: Surroundings


def look_around(
    resources: Resources, *, queues: Iterable[str] = (), lost_workers: Iterable[str] = (), looks_again: bool = False
) -> Surroundings:
    """Read the time, all settings, and the state of these queues.

    Without Redis, depths are unknown and nothing is concluded from them.

    Args:
        resources: The servers and settings.
        queues: Names of the queues to read.
        lost_workers: Ids of workers that are gone.
        looks_again: Whether the caller reads the surroundings repeatedly, as scanners do. It then believes only later
            that a queue was empty (see `Surroundings`).
    """
    settings, store = resources.settings, resources.store
    names = sorted(set(queues))
    depths: dict[str, int] = {}
    # The time is read first, so a queue that is empty now was empty after that time. Queue statistics are read last: a
    # scanner that pushes in between has recorded there that it saw the queue empty.
    started, now = time.monotonic(), store.now()
    if names:
        try:
            depths = resources.broker.depths(names)
        except BrokerError:
            depths = {}
    if looks_again and time.monotonic() - started > settings.claim_margin / 2:
        depths = {}  # messages may have been fetched after `now`; the next scan will tell
    actors = store.actors.stored()
    return Surroundings(
        now=now,
        actors={name: stored.effective for name, stored in actors.items()},
        blocked=frozenset(name for name, stored in actors.items() if stored.blocked),
        process_types=store.process_types.all(),
        queues=store.queues.all() if names else {},
        depths=depths,
        lost_workers=frozenset(lost_workers),
        polled_within=timedelta(seconds=settings.polled_within),
        message_margin=timedelta(seconds=settings.message_margin),
        claim_margin=timedelta(seconds=settings.claim_margin),
        looks_again=looks_again,
        margin=timedelta(seconds=settings.apply_timeout),
    )


def keep_empty(resources: Resources, around: Surroundings, queues: Container[str] | None = None) -> None:
    """Record which queues are empty, before a push fills them; only those of `queues`, if given."""
    if empty := [queue for queue in around.seen_empty() if queues is None or queue in queues]:
        resources.store.queues.seen_empty(empty, around.now, around.claim_margin)


def look_at_all(resources: Resources) -> Surroundings:
    """Read the surroundings with all queues that a worker polled or serves."""
    queues = {*resources.store.actors.all(), *resources.store.queues.all()}
    return look_around(resources, queues=queues)


class RedisLoss:
    """Detection of data loss in Redis, for one process. Thread-safe.

    Redis contains a key that is missing after a loss (`recovery.queue.coordination`). The loss is recorded in MongoDB
    for each queue with its time: tasks queued until then have lost their message. Callers that search for lost
    messages, and each repair, call `look` before they queue anything. Otherwise a task that is queued again before the
    recorded time would be requeued for the same loss once more. Tasks that workers queue before that time, in the
    second after Redis is back, are requeued once more; their older message is discarded as stale.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources, self._marker = resources, Kept(resources.settings.broker_url)
        self._one_at_a_time = Lock()
        self._is_recorded = False
        """Whether MongoDB records, for any queue, that Redis was once seen intact."""

    def look(self, waiting: Collection[str] | None = None) -> None:
        """Record a loss of Redis's data for each queue with waiting tasks, then set the key again.

        Costs one round trip if nothing is lost. If Redis does not answer, nothing is recorded.

        Args:
            waiting: Queues with waiting tasks; read here if None.

        Raises:
            StoreError: MongoDB can't be read or written.
        """
        try:
            if self._is_recorded and self._marker.is_noted():
                return
            with self._one_at_a_time:
                self._check(waiting)
        except BrokerError as error:
            log.debug("not known whether Redis lost its data (%s)", error)  # the code that pushes reports the outage

    def _check(self, waiting: Collection[str] | None) -> None:
        store = self._resources.store
        # MongoDB first, because it is written last. A process that looks between the two writes of the first time would
        # presume that messages in workers' hands are lost.
        known = {} if self._is_recorded else store.queues.all()
        self._is_recorded = self._is_recorded or any(queue.lost_before is not None for queue in known.values())
        if self._is_recorded and self._marker.is_noted():
            return
        queues = store.pending.oldest(store.preferences.told_actors())[0] if waiting is None else waiting
        if not queues:  # no task waits, so nothing is lost and there is no queue to record it for
            return
        if self._is_recorded:
            self._record_loss(queues)
        else:
            self._marker.note()
            store.queues.served({*known, *queues})
            self._is_recorded = True

    def _record_loss(self, queues: Collection[str]) -> None:
        store, broker = self._resources.store, self._resources.broker
        detected_at = store.now()
        depths, waiting = broker.depths(queues), store.pending.count_queued(queues, detected_at)
        # If only the key is missing, the messages are still there.
        lost_queues = [queue for queue, count in waiting.items() if depths[queue] < (1 - IN_HAND) * count]
        if self._marker.is_noted():
            # Another process recorded the loss first, and may have requeued tasks before `detected_at`.
            return
        store.queues.lost(lost_queues, detected_at)
        self._marker.note()
        for queue in lost_queues:
            log.warning("Redis lost its data: what waits in %s is queued again (%d tasks)", queue, waiting[queue])


def readings(
    store: Store, process_ids: Iterable[str], *, committed: bool = False, thorough: Container[str] = ()
) -> Iterator[ReadProcesses]:
    """Yield these processes in pages that fit into memory. See `Store.snapshot_pages`."""
    begun_at = store.now()
    for snapshots in store.snapshot_pages(process_ids, committed=committed, thorough=thorough):
        yield ReadProcesses(snapshots, begun_at)
        begun_at = store.now()


def diagnose(resources: Resources, reading: ReadProcesses, *, looks_again: bool = False) -> Diagnosis:
    """Judge processes that were just read. Reads the surroundings with the queues of their queued tasks."""
    decisions = (decision for snapshot in reading.snapshots for decision in snapshot.decisions.values())
    queues = {decision.actor for decision in decisions if decision.state is DecisionState.QUEUED}
    surroundings = replace(look_around(resources, queues=queues, looks_again=looks_again), as_of=reading.begun_at)
    return Diagnosis(judge(reading.snapshots, surroundings), surroundings)


def judge(snapshots: Iterable[Snapshot], around: Surroundings) -> list[Finding]:
    """Return all findings on these processes, in their order.

    A process that no rule can judge yields one finding about that, and does not affect the others.
    """
    return [finding for snapshot in snapshots for finding in _judge(snapshot, around)]


def _judge(snapshot: Snapshot, surroundings: Surroundings) -> list[Finding]:
    try:
        return judge_process(snapshot, surroundings)
    except SPOILT as error:
        return [not_judged(snapshot.process_id, error)]
