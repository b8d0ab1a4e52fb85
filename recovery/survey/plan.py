"""Plan of ranges: where to cut the process ids so that ranges have even volume.

Ranges are half open, and the first and last are unbounded, so every process lies in exactly one range, including
processes that start later. Cuts are exact in numbers of processes, from a walk along the index. If a sample of
decisions shows that a few processes have far more than their share, their range is cut again. The sample alone is not
sufficient, because it contains too few recent records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from math import ceil

from recovery.store.views.ranges import Range, Ranges

# A range of this size takes two thirds of a second: much longer than starting, leasing and committing it take. It is
# short enough that the last range delays nobody, and that little is repeated if its executor is lost.
PROCESSES_EACH, DECISIONS_EACH = 8_400, 100_000
PER_CORE = 2
MAX_RANGES = 400
SAMPLES_EACH = 10
"""Number of sampled decisions per range. With it, a range of fair size rarely looks twice as large by chance."""


def plan(stored: Ranges, cores: int) -> list[Range]:
    """Return ranges for this number of cores, by the current data."""
    processes, decisions = stored.volume()
    count = how_many(processes, decisions, cores)
    cuts = stored.walk(ceil(processes / count)) if processes else []
    return ranges(refine(cuts, stored.sample(count * SAMPLES_EACH), SAMPLES_EACH))


def how_many(processes: int, decisions: int, cores: int) -> int:
    """Return the number of ranges for this volume, at least PER_CORE per core and at most MAX_RANGES."""
    by_volume = max(ceil(processes / PROCESSES_EACH), ceil(decisions / DECISIONS_EACH))
    return min(MAX_RANGES, max(by_volume, PER_CORE * cores))


def refine(cuts: Sequence[str], drawn: Sequence[str], fair: int) -> list[str]:
    """Return the cuts, and additional cuts where a range has at least twice its fair share of the sorted sample.

    Args:
        cuts: Process ids between ranges.
        drawn: Process ids of the sample, sorted.
        fair: Fair number of sampled ids per range.
    """
    positions = [0, *(bisect_left(drawn, cut) for cut in cuts), len(drawn)]
    finer = set(cuts)
    for first, last in pairwise(positions):
        parts = (last - first) // fair
        finer.update(drawn[first + number * (last - first) // parts] for number in range(1, parts))
    return sorted(finer)


def ranges(cuts: Sequence[str]) -> list[Range]:
    """Return the ranges between cuts. The first and last are unbounded."""
    return [Range(start, end) for start, end in pairwise([None, *cuts, None])]
