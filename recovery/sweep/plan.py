"""Where to cut the process ids, so that partitions are even in volume whatever the ids and sizes are.

Ranges are half open and their ends are open too, so every process, also one that starts meanwhile, lies in
exactly one. Ids sort by time of start and processes differ in size, so the cuts are quantiles of a sample of
decisions, not of the ids' values.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from pymongo.database import Database

from recovery.store.client import Document
from recovery.store.ranges import Range, sample, volume

# A range of this size takes half a second or so: far over what starting its task costs, and short enough that
# the last one does not keep the others waiting, and that little is done again if its executor is lost.
PROCESSES_EACH, DECISIONS_EACH = 5_000, 60_000
PER_CORE = 2
MOST = 400
SAMPLES_EACH = 40
"""Draws per range: the share of a range is then within about a sixth of what it should be."""


def plan(database: Database[Document], cores: int) -> list[Range]:
    """Ranges for so many cores, cut where the data is."""
    processes, decisions = volume(database)
    count = how_many(processes, decisions, cores)
    return ranges(cuts(sample(database, count * SAMPLES_EACH), count))


def how_many(processes: int, decisions: int, cores: int) -> int:
    """How many ranges that volume is worth."""
    by_volume = max(ceil(processes / PROCESSES_EACH), ceil(decisions / DECISIONS_EACH))
    return min(MOST, max(by_volume, PER_CORE * cores))


def cuts(drawn: Sequence[str], count: int) -> list[str]:
    """Where to cut into `count` even parts: quantiles of a sorted sample, each once."""
    if not drawn:
        return []
    return sorted({drawn[place * len(drawn) // count] for place in range(1, count)})


def ranges(cut_at: Sequence[str]) -> list[Range]:
    """The ranges between cuts, with open ends."""
    bounds = [None, *cut_at, None]
    return [Range(start, end) for start, end in zip(bounds, bounds[1:], strict=False)]
