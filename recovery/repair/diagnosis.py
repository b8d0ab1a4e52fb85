"""Processes read whole and judged: the one way to it, for the scanners, for `recovery check` and for the sweep."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from recovery.engine import Resources
from recovery.records import DecisionState
from recovery.repair.surroundings import look_around
from recovery.rules import SPOILT, Finding, Snapshot, Surroundings, judge_process, not_judged
from recovery.store import Store


@dataclass(frozen=True, slots=True)
class Reading:
    """Some processes, and when it was begun to read them, by the database's clock: what has become of them since then
    is not held against them (`Surroundings.as_of`)."""

    snapshots: Sequence[Snapshot]
    begun_at: datetime


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with some processes, and what it was judged by: a repair takes both."""

    findings: list[Finding]
    around: Surroundings


def readings(
    store: Store, process_ids: Iterable[str], *, committed: bool = False, thorough: Container[str] = ()
) -> Iterator[Reading]:
    """These processes, as many at a time as may be held in memory at once. See `Store.snapshot_pages`."""
    begun_at = store.now()
    for snapshots in store.snapshot_pages(process_ids, committed=committed, thorough=thorough):
        yield Reading(snapshots, begun_at)
        begun_at = store.now()


def diagnose(resources: Resources, reading: Reading, *, looks_again: bool = False) -> Diagnosis:
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
