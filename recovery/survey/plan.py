"""Where to cut the process ids, so that partitions are even in volume whatever the ids and sizes are.

Ranges are half open and their ends are open too, so every process, also one that starts meanwhile, lies in
exactly one. Cuts are exact in processes, from a walk along the index. Where a sample of decisions shows that
a few processes hold far more than their share, their range is cut again. The sample alone would not do: it
knows little of what was written last.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from math import ceil

from recovery.store.views.ranges import Range, Ranges

# A range of this size takes two thirds of a second: far over what it costs to start its task, to lease it and to commit
# it, and short enough that the last one keeps nobody waiting and that little is done again if its executor is lost.
PROCESSES_EACH, DECISIONS_EACH = 8_400, 100_000
PER_CORE = 2
MAX_RANGES = 400
SAMPLES_EACH = 10
"""Draws per range. A range of a fair size is drawn twice as often by chance once in 300 times, and cut for nothing."""


def plan(stored: Ranges, cores: int) -> list[Range]:
    """Ranges for so many cores, cut where the data is."""
    processes, decisions = stored.volume()
    count = how_many(processes, decisions, cores)
    cuts = stored.walk(ceil(processes / count)) if processes else []
    return ranges(refine(cuts, stored.sample(count * SAMPLES_EACH), SAMPLES_EACH))


def how_many(processes: int, decisions: int, cores: int) -> int:
    """How many ranges that volume is worth."""
    by_volume = max(ceil(processes / PROCESSES_EACH), ceil(decisions / DECISIONS_EACH))
    return min(MAX_RANGES, max(by_volume, PER_CORE * cores))


def refine(cuts: Sequence[str], drawn: Sequence[str], fair: int) -> list[str]:
    """Cuts, and more of them where the sorted sample `drawn` holds at least twice its fair share."""
    places = [0, *(bisect_left(drawn, cut) for cut in cuts), len(drawn)]
    finer = set(cuts)
    for first, last in pairwise(places):
        parts = (last - first) // fair
        finer.update(drawn[first + part * (last - first) // parts] for part in range(1, parts))
    return sorted(finer)


def ranges(cuts: Sequence[str]) -> list[Range]:
    """The ranges between cuts, with open ends."""
    return [Range(start, end) for start, end in pairwise([None, *cuts, None])]
