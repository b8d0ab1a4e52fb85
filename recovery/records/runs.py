"""What scanners tell of themselves, so that 'nobody nudges' and 'they can't keep up' are told apart; and what one of
them counted last."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from recovery.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerRun(Record):
    """The last run of a scanner in the whole cluster. `id` is the scanner's name.

    `seconds` is of that run; `looked_at` and `repaired` count what its worker did since it last told.
    """

    id: str
    ran_at: datetime | None = None
    nudged_at: datetime | None = None
    """When a worker last took a beat's nudge, as far as is known. Without one, workers scan more seldom."""
    seconds: float = 0.0
    looked_at: int = 0
    repaired: int = 0
    worker: str | None = None
    error: str | None = None
    """Why the run was cut off."""
    lost: tuple[str, ...] = ()
    """Of the scanner of workers: names of those that it found silent last, and forgot."""
    lost_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CensusLine(Record):
    """So many processes of a type are in this state."""

    type: str
    state: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Census(Record):
    """What was counted last of what is live or broken, for the whole cluster. There is one."""

    id: str
    taken_at: datetime | None = None
    """Absent while the first one is taken."""
    next_at: datetime | None = None
    """When somebody may take the next one."""
    seconds: float = 0.0
    processes: tuple[CensusLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Record):
    """By how much a counter grew, or one bucket of a histogram, with these labels."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftCounts(Record):
    """What a program counted that nobody scrapes, left for a worker to add to its own."""

    id: str
    at: datetime | None = None
    samples: tuple[Sample, ...] = ()
