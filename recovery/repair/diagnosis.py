"""What rules judge by: the surroundings, read from the servers, and whole processes.

The scanners, `recovery check` and the sweep all read and judge processes by these functions.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from recovery.engine import Resources
from recovery.errors import BrokerError
from recovery.records import DecisionState
from recovery.rules import SPOILT, Finding, Snapshot, Surroundings, judge_process, not_judged
from recovery.store import Store


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
