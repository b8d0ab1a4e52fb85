"""What failed for good: the Interruption record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from recovery.records.record import OfTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption(OfTask):
    """A task that ended with an error for which its process is broken: what an operator has to look at.

    Its id is the task's, `P/T`, so what is listed is what is broken now. The stack stays in the decision's outcome.
    """

    id: str
    type: str
    """The process's."""
    actor: str
    kind: str
    message: str
    code: int | None = None
    """The error's, by a catalogue of `retry`."""
    fingerprint: str
    attempt: int = 0
    restarts: int = 0
    """Of the decision that failed."""
    reopened: int = 0
    """How often the process had been set running again: the life of it in which this was listed."""
    at: datetime | None = None
