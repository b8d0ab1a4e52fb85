"""Examine one range: survey it, find suspects, and judge them.

The rules are those of the scanners. A range is judged with the surroundings that were read at its start; records that
became overdue later are left to the scanners. Findings are made from snapshots that were read completely, so changes
while the range was read do not count as errors.
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
"""Up to this many chosen processes are read individually. For more, reading the whole range is faster."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a range is examined."""

    around: Surroundings
    chosen: Sequence[str] | None = None
    """The chosen processes in order; None: all processes of the range."""
    thorough: bool = False
    """Whether to search for damage in records at rest and in fields that no rule reads. Takes several times as long."""


Wrong = tuple[list[Snapshot], list[Finding]]
"""Processes that were suspected, and the findings on them."""
NOTHING: Wrong = ([], [])


def wrong_in(store: Store, look: Look, part: Range, seen: RangeCounts) -> Iterator[Wrong]:
    """Yield suspected processes and findings of a range, page by page.

    Also yields NOTHING after each portion that was read, so that the caller can extend its lease. Counts in `seen` what
    is read.
    """
    if look.chosen is not None and len(look.chosen) <= FEW:
        yield from _among(store, look, look.chosen, seen)
        return
    examined, chosen = set[str](), frozenset(look.chosen) if look.chosen is not None else None
    to_read = dict[str, bool]()
    for page in survey(store.ranges, part, seen, chosen):
        if page:
            yield from _of_page(store, look, page, seen, to_read)
        if len(to_read) >= PORTION:
            examined |= to_read.keys()
            yield from _whole(store, look, to_read)
            to_read = {}
        yield NOTHING
    examined |= to_read.keys()
    yield from _whole(store, look, to_read)
    if chosen is None:
        for _ in look_for_tasks(store.ranges, part, seen, thorough=look.thorough):
            yield NOTHING
    if look.thorough:
        # Damage of wrong types, in records at rest or in fields that the survey does not read.
        damaged = dict[str, None]()
        for start, end in pairwise([part.start, *seen.cuts, part.end]):
            damaged |= dict.fromkeys(store.ranges.damaged(Range(start, end)))
            yield NOTHING
        unexamined = [
            process_id
            for process_id in damaged
            if process_id not in examined and (chosen is None or process_id in chosen)
        ]
        seen.orphans.difference_update(unexamined)
        yield from _whole(store, look, dict.fromkeys(unexamined, True))
    # Records without a process, or of a process that started while the range was read.
    yield from _whole(store, look, dict.fromkeys(seen.orphans, False))


def _of_page(
    store: Store, look: Look, page: Sequence[Outline], seen: RangeCounts, to_read: dict[str, bool]
) -> Iterator[Wrong]:
    """Yield findings on outlined processes that are certain. Add the other suspects to `to_read`.

    Processes in `to_read` are read completely, many at once because that is faster. The value says whether to search
    for damage where no rule looks.
    """
    ranges = store.ranges

    def counted_tasks(process_ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
        tasks = ranges.tasks(process_ids)
        seen.tasks += sum(map(len, tasks.values()))
        return tasks

    damaged = dict.fromkeys(ranges.damaged_among([outline.process["_id"] for outline in page]))
    suspicion = suspect(page, look.around, Source(ranges.decisions, counted_tasks, ranges.listed))
    certain = [
        (snapshot, findings)
        for snapshot, findings in suspicion.certain
        if not look.thorough and snapshot.process_id not in damaged
    ]
    if certain:
        yield [snapshot for snapshot, _ in certain], [finding for _, findings in certain for finding in findings]
    certain_ids = {snapshot.process_id for snapshot, _ in certain}
    uncertain = [snapshot.process_id for snapshot, _ in suspicion.certain if snapshot.process_id not in certain_ids]
    to_read |= dict.fromkeys([*suspicion.suspects, *uncertain], look.thorough) | dict.fromkeys(damaged, True)


def _whole(store: Store, look: Look, to_read: Mapping[str, bool]) -> Iterator[Wrong]:
    """Yield findings on processes that are read completely. True: search for damage where no rule looks."""
    thorough = frozenset(process_id for process_id, is_thorough in to_read.items() if is_thorough)
    for snapshots in store.snapshot_pages(to_read, committed=True, thorough=thorough):
        yield snapshots, judge(snapshots, look.around)


def _among(store: Store, look: Look, chosen: Sequence[str], seen: RangeCounts) -> Iterator[Wrong]:
    """Yield findings on a few chosen processes, and search them for damage."""
    for snapshots in store.snapshot_pages(chosen, committed=True, thorough=frozenset(chosen)):
        seen.processes += len(snapshots)
        seen.decisions += sum(len(snapshot.decisions) for snapshot in snapshots)
        yield snapshots, judge(snapshots, look.around)


@contextmanager
def without_collector() -> Iterator[None]:
    """Disable Python's cycle collector within this block.

    Documents contain no cycles. Searching for cycles while thousands of documents are decoded takes much longer than to
    decode them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
