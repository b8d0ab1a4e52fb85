"""What an executor does with one range: survey, judge, and repair if asked.

The rules are those of the scanners. A range is judged with the surroundings that the driver saw at the start: by
then-time a deadline is past later than by now, so what is only a little late is left to the scanners. Repair
looks around and reads its suspects again, judges them again, and its updates compare and set; a sweep that
is out of date does nothing, and a range may be examined twice.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from recovery.engine import Applier, Resources
from recovery.records import DecisionState
from recovery.repair import Done, Repairer, look_around
from recovery.rules import Finding, Rule, Snapshot, Surroundings, judge_process
from recovery.settings import Settings
from recovery.store.ranges import Range, of_type
from recovery.sweep.read import Seen, survey
from recovery.sweep.report import SHOWN, RangeResult, suspects

PAGE = 100
"""Processes read whole at once: a page's snapshots are held in memory."""
FEW = 500
"""So few processes of the type asked for are read one by one; from here on it is quicker to read the range."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What the driver sends to all executors."""

    settings: Settings
    around: Surroundings
    repair: bool = False
    process_type: str | None = None


def examine(errand: Errand, part: Range) -> RangeResult:
    """Find what is wrong in a range, and repair it if that is asked for."""
    with _without_collector():
        return _examine(errand, part)


def _examine(errand: Errand, part: Range) -> RangeResult:
    resources = _resources(errand.settings)
    seen = _survey(resources, part, errand.process_type)
    found: list[Finding] = []
    counts, ids = Counter[Rule](), dict[str, None]()
    repaired: Done = Counter()
    whole_read = 0
    for page in _pages(seen.not_at_rest):
        snapshots = resources.store.snapshots(page)
        whole_read += sum(len(snapshot.decisions) for snapshot in snapshots)
        findings = [f for snapshot in snapshots for f in judge_process(snapshot, errand.around)]
        counts.update(f.rule for f in findings)
        wrong = dict.fromkeys(f.process_id for f in findings)
        if len(ids) < SHOWN:
            found += findings
        ids |= wrong
        if errand.repair and wrong:
            repaired += _repair(resources, list(wrong))
    return RangeResult(
        processes=seen.processes,
        decisions=seen.decisions or whole_read,
        judged=len(seen.not_at_rest),
        suspects=len(ids),
        findings=counts,
        repaired=repaired,
        sample=suspects(found),
    )


def _survey(resources: Resources, part: Range, process_type: str | None) -> Seen:
    database = resources.store.database
    if process_type is None:
        return survey(database, part)
    chosen = of_type(database, part, process_type)
    if len(chosen) <= FEW:
        return Seen(processes=len(chosen), not_at_rest=chosen)
    return survey(database, part, frozenset(chosen))


def _repair(resources: Resources, process_ids: Sequence[str]) -> Done:
    snapshots = resources.store.snapshots(process_ids)
    around = look_around(resources, queues=_queues(snapshots))
    findings = [finding for snapshot in snapshots for finding in judge_process(snapshot, around)]
    return _repairer(resources).repair(findings, around)


def _queues(snapshots: Sequence[Snapshot]) -> set[str]:
    decisions = (decision for snapshot in snapshots for decision in snapshot.decisions.values())
    return {decision.actor for decision in decisions if decision.state is DecisionState.QUEUED}


def _pages(process_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (process_ids[first : first + PAGE] for first in range(0, len(process_ids), PAGE))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Documents have no cycles, and are made by the million: looking for cycles takes a sixth of all time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@lru_cache(maxsize=4)
def _resources(settings: Settings) -> Resources:
    """One set of connections per executor process, whatever number of ranges it gets."""
    return Resources.connect(settings)


@lru_cache(maxsize=4)
def _repairer(resources: Resources) -> Repairer:
    return Repairer(resources, Applier(resources))
