"""What an executor does with one range: survey, suspect, judge, and repair if asked.

The rules are those of the scanners. A range is judged with the surroundings that the driver saw at the start;
what became overdue since then is left to the scanners. A finding is made from a snapshot that was read whole,
so a process that moved on while the range was read is not held against it. Repair looks around, reads its
processes and judges them once more, and its updates compare and set: a sweep that is out of date does
nothing, and a range may be examined twice.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from recovery.engine import Applier, Resources
from recovery.repair import Done, Repairer, diagnose, judge, readings
from recovery.rules import Finding, Rule, Snapshot, Surroundings
from recovery.settings import Settings
from recovery.store import PORTION, PORTION_TASKS
from recovery.store.views.ranges import Range
from recovery.sweep.outline import Source
from recovery.sweep.outline import suspects as suspicious
from recovery.sweep.read import Outline, RangeCounts, look_for_tasks, survey
from recovery.sweep.report import SHOWN, RangeResult, suspects

FEW = 500
"""So few processes of the type asked for are read one by one; from here on it is quicker to read the range."""


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """What the driver sends to all executors."""

    settings: Settings
    around: Surroundings
    repair: bool = False
    process_type: str | None = None
    thorough: bool = False
    """Whether damage is looked for in what is at rest, too, and in what no rule reads."""


def examine(request: SweepRequest, part: Range) -> RangeResult:
    """Find what is wrong in a range, and repair it if that is asked for."""
    with without_collector():
        return _examine(request, part)


def wrong_in(request: SweepRequest, part: Range, seen: RangeCounts) -> Iterator[tuple[list[Snapshot], list[Finding]]]:
    """What is wrong in a range, page by page: processes that were suspected, and what was found on them. What is read
    is counted in `seen`."""
    resources, odd = connected(request.settings), set[str]()
    suspected = _suspects(resources, request, part, seen, odd)
    for snapshots in resources.store.snapshot_pages(suspected, committed=True, thorough=odd):
        yield snapshots, judge(snapshots, request.around)


def _examine(request: SweepRequest, part: Range) -> RangeResult:
    resources, seen = connected(request.settings), RangeCounts()
    found: list[Finding] = []
    counts, repaired = Counter[Rule](), Done()
    wrong = 0
    for _, findings in wrong_in(request, part, seen):
        counts.update(f.rule for f in findings)
        ids = list(dict.fromkeys(f.process_id for f in findings))
        if wrong < SHOWN:
            found += findings
        wrong += len(ids)
        if request.repair and ids:
            repaired += _repair(resources, ids)
    return RangeResult(seen.processes, seen.decisions, wrong, counts, repaired, suspects(found))


def _suspects(
    resources: Resources, request: SweepRequest, part: Range, seen: RangeCounts, odd: set[str]
) -> Iterator[str]:
    """Processes to be read whole; to `odd` go those that are damaged where no rule looks."""
    stored, chosen = resources.store.ranges, None
    if request.process_type is not None:
        of_this_type = stored.of_type(part, request.process_type)
        chosen = frozenset(of_this_type)
        if len(chosen) <= FEW:
            yield from _among(resources, request, of_this_type, seen, odd)
            return

    def counted(process_ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
        found = stored.tasks(process_ids)
        seen.tasks += sum(map(len, found.values()))
        return found

    told, source = set[str](), Source(stored.decisions, counted, stored.listed)
    for page in _pages(survey(stored, part, seen, chosen)):
        spoilt = [*stored.damaged_among([outline.process["_id"] for outline in page])]
        suspects_here = dict.fromkeys([*suspicious(page, request.around, source), *spoilt])
        odd.update(suspects_here if request.thorough else spoilt)
        told.update(suspects_here)
        yield from suspects_here
    if chosen is None:
        look_for_tasks(stored, part, seen, thorough=request.thorough)
    # What is of another type than it can be, at rest or where the survey does not look.
    for process_id in dict.fromkeys(stored.damaged(part) if request.thorough else ()):
        if process_id not in told and (chosen is None or process_id in chosen):
            seen.orphans.discard(process_id)
            odd.add(process_id)
            yield process_id
    yield from seen.orphans  # or of processes that started while the range was read


def _among(
    resources: Resources, request: SweepRequest, chosen: Sequence[str], seen: RangeCounts, odd: set[str]
) -> Iterator[str]:
    odd.update(chosen)  # so few are looked into wholly
    for snapshots in resources.store.snapshot_pages(chosen, committed=True, thorough=odd):
        seen.processes += len(snapshots)
        seen.decisions += sum(len(snapshot.decisions) for snapshot in snapshots)
        yield from (snapshot.process_id for snapshot in snapshots if judge([snapshot], request.around))


def _repair(resources: Resources, process_ids: Sequence[str]) -> Done:
    done = Done()
    for reading in readings(resources.store, process_ids):
        diagnosis = diagnose(resources, reading)
        done += _repairer(resources).repair(diagnosis.findings, diagnosis.around)
    return done


def _pages(outlines: Iterable[Outline]) -> Iterator[list[Outline]]:
    """As many as may be held in memory at once."""
    page, weight = list[Outline](), 0
    for outline in outlines:
        page.append(outline)
        weight += outline.weight
        if len(page) == PORTION or weight > PORTION_TASKS:
            yield page
            page, weight = [], 0
    if page:
        yield page


@contextmanager
def without_collector() -> Iterator[None]:
    """Documents have no cycles, and are made by the million: looking for cycles takes a sixth of all time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@lru_cache(maxsize=4)
def connected(settings: Settings) -> Resources:
    """One set of connections per executor process, whatever number of ranges it gets."""
    return Resources.connect(settings)


@lru_cache(maxsize=4)
def _repairer(resources: Resources) -> Repairer:
    return Repairer(resources, Applier(resources))
