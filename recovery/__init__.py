"""Durable, long-running processes on Celery workers. A process always ends, even if workers are killed.

    from recovery import Recovery, heartbeat

The README has a first process; docs/ has everything else.

Each name below is imported at its first use. Because of this, the command line and Spark's executors, which need only a
part of the package, do not load the drivers of all parts.
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
