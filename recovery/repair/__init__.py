"""Repairs: turn findings of rules into compare-and-set updates.

`Repairer` repeats steps of the engine, in batches.
"""

from recovery.repair.changed import Changed, Done, Repaired
from recovery.repair.diagnosis import (
    Diagnosis,
    ReadProcesses,
    RedisLoss,
    diagnose,
    judge,
    keep_empty,
    look_around,
    look_at_all,
    readings,
)
from recovery.repair.repairer import Repairer
from recovery.repair.requeue_pace import Later, RequeuePace

__all__ = [
    "Changed",
    "Diagnosis",
    "Done",
    "Later",
    "ReadProcesses",
    "RedisLoss",
    "Repaired",
    "Repairer",
    "RequeuePace",
    "diagnose",
    "judge",
    "keep_empty",
    "look_around",
    "look_at_all",
    "readings",
]
