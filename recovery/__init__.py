"""Long-running processes on Celery workers that always end, whatever is killed.

    from recovery import Recovery, heartbeat

See the README for a first process, docs/ for everything else.

The names below are imported at their first use: the command line and Spark's executors, which need a corner of
the package, don't wait for the drivers of all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.lazy_imports import exported

if TYPE_CHECKING:
    from recovery.engine import Actor, LogContext, Recovery, Started, heartbeat, reschedule
    from recovery.errors import (
        ClaimLost,
        CustomIdTaken,
        InputError,
        ProcessBroken,
        ProcessNotFound,
        RecoveryError,
        ResultTimeout,
        SettingsError,
    )
    from recovery.records import Failure, Promise
    from recovery.retry import (
        Backoff,
        BestEffort,
        Catalogue,
        Durable,
        Entry,
        ErrorCode,
        ErrorMap,
        Reason,
        Request,
        RetryAction,
        RetryStrategy,
        reason_of,
    )
    from recovery.retry.strategies import Until, stop_after_attempts, stop_for
    from recovery.settings import Settings

__all__ = [
    "Actor",
    "Backoff",
    "BestEffort",
    "Catalogue",
    "ClaimLost",
    "CustomIdTaken",
    "Durable",
    "Entry",
    "ErrorCode",
    "ErrorMap",
    "Failure",
    "InputError",
    "LogContext",
    "ProcessBroken",
    "ProcessNotFound",
    "Promise",
    "Reason",
    "Recovery",
    "RecoveryError",
    "Request",
    "ResultTimeout",
    "RetryAction",
    "RetryStrategy",
    "Settings",
    "SettingsError",
    "Started",
    "Until",
    "heartbeat",
    "reason_of",
    "reschedule",
    "stop_after_attempts",
    "stop_for",
]

__getattr__ = exported(
    __name__,
    {
        "engine": "Actor LogContext Recovery Started heartbeat reschedule",
        "errors": (
            "ClaimLost CustomIdTaken InputError ProcessBroken ProcessNotFound RecoveryError ResultTimeout SettingsError"
        ),
        "records": "Failure Promise",
        "retry": (
            "Backoff BestEffort Catalogue Durable Entry ErrorCode ErrorMap Reason Request RetryAction RetryStrategy "
            "reason_of"
        ),
        "retry.strategies": "Until stop_after_attempts stop_for",
        "settings": "Settings",
    },
)
