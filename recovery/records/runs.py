"""What a scanner tells of itself, so that 'nobody nudges' and 'they can't keep up' are told apart."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from recovery.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerRun(Record):
    """The last run of a scanner in the whole cluster. `id` is the scanner's name.

    `seconds` is of that run; `looked_at` and `repaired` count what its worker did since it last told.
    """

    id: str
    ran_at: datetime | None = None
    seconds: float = 0.0
    looked_at: int = 0
    repaired: int = 0
    worker: str | None = None
    error: str | None = None
    """Why the run was cut off."""
