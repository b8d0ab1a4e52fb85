"""Is the cluster well, and is one process? What `recovery doctor` and `recovery check` ask.

The doctor's checks are small functions that each return one `Check`: what was found, how bad it is and what to do.
`doctor` runs them all, and one that fails stops no other. Each module has the checks of one subject: `mongodb_server`,
`redis_server`, `machine`, `live_workers`, `untaken_tasks`, `versions`, `beat_and_scanners`, `stored_records`,
`operator_records`. Nothing of a user's is written. `process_check` judges one process with the scanners' own rules and
has the scanners' repairs done to it. `untaken_tasks` also says in words what tasks wait for that no worker
takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.lazy_imports import exported

if TYPE_CHECKING:
    from recovery.health.doctor import examine
    from recovery.health.model import Check, Level
    from recovery.health.process_check import Deadline, Examination, deadlines, look, repair

__all__ = ["Check", "Deadline", "Examination", "Level", "deadlines", "examine", "look", "repair"]

__getattr__ = exported(
    __name__,
    {
        "doctor": "examine",
        "model": "Check Level",
        "process_check": "Deadline Examination deadlines look repair",
    },
)
