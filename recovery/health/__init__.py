"""Is the cluster well, and is one process? What `recovery doctor` and `recovery check` ask.

The doctor's checks are small functions that each give one `Check`: what was found, how bad it is and what to do.
`doctor` runs them all, none in another's way; they stand by what they look at: `servers`, `clocks`, `installation`,
`records`, `workers`, `polls`. Nothing of a user's is written. `process` judges one process with the scanners' own
rules and has the scanners' repairs done to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.exports import exported

if TYPE_CHECKING:
    from recovery.health.doctor import examine
    from recovery.health.model import Check, Level
    from recovery.health.process import Deadline, Examination, deadlines, look, repair

__all__ = ["Check", "Deadline", "Examination", "Level", "deadlines", "examine", "look", "repair"]

__getattr__ = exported(
    __name__,
    {
        "doctor": "examine",
        "model": "Check Level",
        "process": "Deadline Examination deadlines look repair",
    },
)
