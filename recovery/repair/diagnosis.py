"""What rules judge by: the surroundings, read from the servers, and whole processes.

The scanners, `recovery check` and the sweep all read and judge processes by these functions.

An empty queue is the evidence of a lost message, and requeues fill the queue. From the next page, and from other
scanners, that would hide what became of their messages, until workers have drained it. So what queues show is written
down in MongoDB before anything is pushed (`keep_empty`, `RedisLoss`). A queue that was empty at T holds only what was
pushed since then. That was queued after T too, except for a push that was under way at T (the margin). So of what waits
in a queue that lags nothing is ever requeued, and all that was lost is found, however many pages and scans that takes.
What is requeued is queued later than T, so it is requeued once for each time that the queue was found empty.

That a queue is empty just now proves nothing about what a worker took from it just now and is about to claim: the first
slots that start up after an outage find the queue empty, and what they took had waited for long. So T is believed at a
later look, `claim_margin` after it (`Surroundings.empty_at`), by whoever looks then.
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
"""The part of what waits, at most, whose messages may be in hands just now."""


@dataclass(frozen=True, slots=True)
class ReadProcesses:
    """Some processes, and when it was begun to read them, by the database's clock: what has become of them since then
    is not held against them (`Surroundings.as_of`)."""

    snapshots: Sequence[Snapshot]
    begun_at: datetime


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with some processes, and what it was judged by: a repair takes both."""

    findings: list[Finding]
    around: Surroundings


def look_around(
    resources: Resources, *, queues: Iterable[str] = (), lost_workers: Iterable[str] = (), looks_again: bool = False
) -> Surroundings:
    """The time, all settings, and what is known of these queues. A scanner `looks_again` (see `Surroundings`)."""
    settings, store = resources.settings, resources.store
    names = sorted(set(queues))
    depths: dict[str, int] = {}
    # In this order: a queue that is empty was so after this time; and where a scanner pushes in between, it has told
    # in the statistics that it saw the queue empty. Without Redis nothing is concluded from depths.
    began, now = time.monotonic(), store.now()
    if names:
        try:
            depths = resources.broker.depths(names)
        except BrokerError:
            depths = {}
    if looks_again and time.monotonic() - began > settings.claim_margin / 2:
        depths = {}  # what a queue lacks now was taken after `now`, perhaps: to be seen at the next look
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
    """Write down which queues are empty, before anything is pushed that fills them; of these only, if any are named."""
    if empty := [queue for queue in around.seen_empty() if queues is None or queue in queues]:
        resources.store.queues.seen_empty(empty, around.now, around.claim_margin)


def look_at_all(resources: Resources) -> Surroundings:
    """The same of all queues that any worker polled or serves."""
    known = {*resources.store.actors.all(), *resources.store.queues.all()}
    return look_around(resources, queues=known)


class RedisLoss:
    """Whether Redis lost its data, as far as one process knows. For any number of threads.

    It is seen by a key that Redis lacks then (`recovery.queue.coordination`), and noted in MongoDB for each queue, with
    the moment. What was queued up to that moment has lost its message. So whoever looks for lost messages looks here
    first, and each repair does before it queues anything: what it queued again before that moment would be requeued for
    the same loss once more. What workers queue before that moment, a second or so after Redis is back, is requeued once
    more, and its older message is dropped as stale.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources, self._kept = resources, Kept(resources.settings.broker_url)
        self._one_at_a_time = Lock()
        self._is_told = False
        """Whether MongoDB has it of any queue that Redis was seen with all data, once it was."""

    def look(self, waiting: Collection[str] | None = None) -> None:
        """Where Redis lost its data, tell so of each queue in which tasks wait (read here if they are not given), and
        only then note that it is known. Costs one round trip where all is well. Where Redis is away nothing is known.
        Raises StoreError."""
        try:
            if self._is_told and self._kept.is_noted():
                return
            with self._one_at_a_time:
                self._see(waiting)
        except BrokerError as error:
            log.debug("not known whether Redis lost its data (%s)", error)  # who pushes says it

    def _see(self, waiting: Collection[str] | None) -> None:
        store = self._resources.store
        # First what MongoDB has, which is written last: who looks between the two writes of the first time would take
        # for lost what a worker has in hand.
        known = {} if self._is_told else store.queues.all()
        self._is_told = self._is_told or any(queue.lost_before is not None for queue in known.values())
        if self._is_told and self._kept.is_noted():
            return
        queues = store.pending.oldest(store.preferences.told_actors())[0] if waiting is None else waiting
        if not queues:  # nothing is lost, and of nothing it could be told that Redis has it
            return
        if self._is_told:
            self._tell(queues)
        else:
            self._kept.note()
            store.queues.served({*known, *queues})
            self._is_told = True

    def _tell(self, queues: Collection[str]) -> None:
        store, broker = self._resources.store, self._resources.broker
        before = store.now()
        depths, waiting = broker.depths(queues), store.pending.count_queued(queues, before)
        # All is there where but the key is gone.
        lost = [queue for queue, count in waiting.items() if depths[queue] < (1 - IN_HAND) * count]
        if self._kept.is_noted():
            return  # by another process: what that one queued again was queued before this moment, perhaps
        store.queues.lost(lost, before)
        self._kept.note()
        for queue in lost:
            log.warning("Redis lost its data: what waits in %s is queued again (%d tasks)", queue, waiting[queue])


def readings(
    store: Store, process_ids: Iterable[str], *, committed: bool = False, thorough: Container[str] = ()
) -> Iterator[ReadProcesses]:
    """These processes, as many at a time as may be held in memory at once. See `Store.snapshot_pages`."""
    begun_at = store.now()
    for snapshots in store.snapshot_pages(process_ids, committed=committed, thorough=thorough):
        yield ReadProcesses(snapshots, begun_at)
        begun_at = store.now()


def diagnose(resources: Resources, reading: ReadProcesses, *, looks_again: bool = False) -> Diagnosis:
    """Judge processes that were just read."""
    decisions = (decision for snapshot in reading.snapshots for decision in snapshot.decisions.values())
    queues = {decision.actor for decision in decisions if decision.state is DecisionState.QUEUED}
    around = replace(look_around(resources, queues=queues, looks_again=looks_again), as_of=reading.begun_at)
    return Diagnosis(judge(reading.snapshots, around), around)


def judge(snapshots: Iterable[Snapshot], around: Surroundings) -> list[Finding]:
    """All findings on these processes, one process after the other. One that no rule can judge is told, and hides none
    of the others."""
    return [finding for snapshot in snapshots for finding in _judge(snapshot, around)]


def _judge(snapshot: Snapshot, around: Surroundings) -> list[Finding]:
    try:
        return judge_process(snapshot, around)
    except SPOILT as error:
        return [not_judged(snapshot.process_id, error)]
