"""What is wrong in one range: survey, suspect, judge.

The rules are those of the scanners. A range is judged with the surroundings that were seen at its start; what became
overdue since then is left to the scanners. A finding is made from a snapshot that was read whole, so a process that
moved on while the range was read is not held against it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from recovery.repair import judge
from recovery.rules import Finding, Snapshot, Surroundings
from recovery.store import PORTION, PORTION_TASKS, Store
from recovery.store.views.ranges import Range
from recovery.survey.outline import Source
from recovery.survey.outline import suspects as suspicious
from recovery.survey.read import Outline, RangeCounts, look_for_tasks, survey

FEW = 500
"""So few chosen processes are read one by one; from here on it is quicker to read the range."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a range is looked at."""

    around: Surroundings
    chosen: Sequence[str] | None = None
    """The processes that it is about, in order; None: all."""
    thorough: bool = False
    """Whether damage is looked for in what is at rest, too, and in what no rule reads: takes three times as long."""


def wrong_in(
    store: Store, look: Look, part: Range, seen: RangeCounts
) -> Iterator[tuple[list[Snapshot], list[Finding]]]:
    """What is wrong in a range, page by page: processes that were suspected, and what was found on them. What is read
    is counted in `seen`."""
    odd = set[str]()
    suspected = _suspects(store, look, part, seen, odd)
    for snapshots in store.snapshot_pages(suspected, committed=True, thorough=odd):
        yield snapshots, judge(snapshots, look.around)


def _suspects(store: Store, look: Look, part: Range, seen: RangeCounts, odd: set[str]) -> Iterator[str]:
    """Processes to be read whole; to `odd` go those that are damaged where no rule looks."""
    stored, chosen = store.ranges, None
    if look.chosen is not None:
        if len(look.chosen) <= FEW:
            yield from _among(store, look, look.chosen, seen, odd)
            return
        chosen = frozenset(look.chosen)

    def counted(process_ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
        found = stored.tasks(process_ids)
        seen.tasks += sum(map(len, found.values()))
        return found

    told, source = set[str](), Source(stored.decisions, counted, stored.listed)
    for page in _pages(survey(stored, part, seen, chosen)):
        spoilt = [*stored.damaged_among([outline.process["_id"] for outline in page])]
        suspects_here = dict.fromkeys([*suspicious(page, look.around, source), *spoilt])
        odd.update(suspects_here if look.thorough else spoilt)
        told.update(suspects_here)
        yield from suspects_here
    if chosen is None:
        look_for_tasks(stored, part, seen, thorough=look.thorough)
    # What is of another type than it can be, at rest or where the survey does not look.
    for process_id in dict.fromkeys(stored.damaged(part) if look.thorough else ()):
        if process_id not in told and (chosen is None or process_id in chosen):
            seen.orphans.discard(process_id)
            odd.add(process_id)
            yield process_id
    yield from seen.orphans  # or of processes that started while the range was read


def _among(store: Store, look: Look, chosen: Sequence[str], seen: RangeCounts, odd: set[str]) -> Iterator[str]:
    odd.update(chosen)  # so few are looked into wholly
    for snapshots in store.snapshot_pages(chosen, committed=True, thorough=odd):
        seen.processes += len(snapshots)
        seen.decisions += sum(len(snapshot.decisions) for snapshot in snapshots)
        yield from (snapshot.process_id for snapshot in snapshots if judge([snapshot], look.around))


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
