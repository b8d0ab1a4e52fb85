"""Long-running processes on Celery workers that always end, whatever is killed.

    from recovery import Recovery, heartbeat

See the README for a first process, docs/ for everything else.
"""

from recovery.engine import Actor, Recovery, heartbeat
from recovery.errors import (
    ClaimLost,
    InputError,
    ProcessBroken,
    ProcessNotFound,
    RecoveryError,
    ResultTimeout,
    SettingsError,
)
from recovery.records import Promise
from recovery.settings import Settings

__all__ = [
    "Actor",
    "ClaimLost",
    "InputError",
    "ProcessBroken",
    "ProcessNotFound",
    "Promise",
    "Recovery",
    "RecoveryError",
    "ResultTimeout",
    "Settings",
    "SettingsError",
    "heartbeat",
]
