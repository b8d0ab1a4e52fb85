"""What is wrong in one range: survey, suspect, judge.

The rules are those of the scanners. A range is judged with the surroundings that were seen at its start; what became
overdue since then is left to the scanners. A finding is made from a snapshot that was read whole, so a process that
moved on while the range was read is not held against it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from recovery.repair import judge
from recovery.rules import Finding, Snapshot, Surroundings
from recovery.store import PORTION, Store
from recovery.store.views.ranges import Range
from recovery.survey.outline import Source, suspect
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
    """Whether damage is looked for in what is at rest, too, and in what no rule reads: takes several times as long."""


Wrong = tuple[list[Snapshot], list[Finding]]
"""Processes that were suspected, and what was found on them."""
NOTHING: Wrong = ([], [])


def wrong_in(store: Store, look: Look, part: Range, seen: RangeCounts) -> Iterator[Wrong]:
    """What is wrong in a range, page by page; and nothing after each portion that was read, so that who holds a lease
    hears of it, be anything wrong or not. What is read is counted in `seen`."""
    if look.chosen is not None and len(look.chosen) <= FEW:
        yield from _among(store, look, look.chosen, seen)
        return
    told, chosen = set[str](), frozenset(look.chosen) if look.chosen is not None else None
    later = dict[str, bool]()
    for page in survey(store.ranges, part, seen, chosen):
        if page:
            yield from _of_page(store, look, page, seen, later)
        if len(later) >= PORTION:
            told |= later.keys()
            yield from _whole(store, look, later)
            later = {}
        yield NOTHING
    told |= later.keys()
    yield from _whole(store, look, later)
    if chosen is None:
        for _ in look_for_tasks(store.ranges, part, seen, thorough=look.thorough):
            yield NOTHING
    if look.thorough:
        # What is of another type than it can be, at rest or where the survey does not look.
        damaged = dict[str, None]()
        for start, end in pairwise([part.start, *seen.cuts, part.end]):
            damaged |= dict.fromkeys(store.ranges.damaged(Range(start, end)))
            yield NOTHING
        odd = [one for one in damaged if one not in told and (chosen is None or one in chosen)]
        seen.orphans.difference_update(odd)
        yield from _whole(store, look, dict.fromkeys(odd, True))
    # Of no process, or of one that started while the range was read.
    yield from _whole(store, look, dict.fromkeys(seen.orphans, False))


def _of_page(
    store: Store, look: Look, page: Sequence[Outline], seen: RangeCounts, later: dict[str, bool]
) -> Iterator[Wrong]:
    """What is wrong on outlined processes, as far as their outlines tell. Those that are to be read whole are put with
    the ones that are read `later`, each with whether it can be damaged where no rule looks: many at once are read in
    two thirds of the time that a few take."""
    stored = store.ranges

    def counted(process_ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
        found = stored.tasks(process_ids)
        seen.tasks += sum(map(len, found.values()))
        return found

    spoilt = dict.fromkeys(stored.damaged_among([outline.process["_id"] for outline in page]))
    suspicion = suspect(page, look.around, Source(stored.decisions, counted, stored.listed))
    certain = [
        (snapshot, findings)
        for snapshot, findings in suspicion.certain
        if not look.thorough and snapshot.process_id not in spoilt
    ]
    if certain:
        yield [snapshot for snapshot, _ in certain], [finding for _, findings in certain for finding in findings]
    done = {snapshot.process_id for snapshot, _ in certain}
    others = [snapshot.process_id for snapshot, _ in suspicion.certain if snapshot.process_id not in done]
    later |= dict.fromkeys([*suspicion.suspects, *others], look.thorough) | dict.fromkeys(spoilt, True)


def _whole(store: Store, look: Look, wanted: Mapping[str, bool]) -> Iterator[Wrong]:
    """What is wrong on processes that are read whole; on those with True, where no rule looks as well."""
    odd = frozenset(process_id for process_id, is_odd in wanted.items() if is_odd)
    for snapshots in store.snapshot_pages(wanted, committed=True, thorough=odd):
        yield snapshots, judge(snapshots, look.around)


def _among(store: Store, look: Look, chosen: Sequence[str], seen: RangeCounts) -> Iterator[Wrong]:
    """The same of a few processes, which are looked into wholly."""
    for snapshots in store.snapshot_pages(chosen, committed=True, thorough=frozenset(chosen)):
        seen.processes += len(snapshots)
        seen.decisions += sum(len(snapshot.decisions) for snapshot in snapshots)
        yield snapshots, judge(snapshots, look.around)


@contextmanager
def without_collector() -> Iterator[None]:
    """Documents have no cycles, and are made by the million: to look for cycles among a thousand that are just being
    decoded takes four times as long as to decode them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
