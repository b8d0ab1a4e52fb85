"""Errors that this library raises in actors which call it. Codes 10101, from 25000 and from 45000 on.

What says that a server is away is none of them: it was raised from the driver's error, which says more.
"""

from __future__ import annotations

from recovery.retry.catalogue import Catalogue, Entry
from recovery.retry.codes import ErrorCode
from recovery.retry.reasons import TIMEOUT_IN_FLIGHT, UNKNOWN

INVALID_INPUT = ErrorCode(
    10101, "INVALID_INPUT", "What the actor gave can't be used, or is refused; nothing was changed"
)
RESULT_TIMEOUT = ErrorCode(25001, "RESULT_TIMEOUT", "A process that the actor waits for goes on")
PROCESS_BROKEN = ErrorCode(45001, "PROCESS_BROKEN", "A process that the actor waits for ended without a result")
DAMAGED_RECORD = ErrorCode(45002, "DAMAGED_RECORD", "A record can't be read")


def _named(*names: str) -> frozenset[str]:
    return frozenset(f"recovery.errors.{name}" for name in names)


OWN = Catalogue(
    "recovery",
    (
        Entry(INVALID_INPUT, UNKNOWN, types=_named("InputError", "SettingsError")),
        Entry(RESULT_TIMEOUT, TIMEOUT_IN_FLIGHT, types=_named("ResultTimeout")),
        Entry(PROCESS_BROKEN, UNKNOWN, types=_named("ProcessBroken")),
        Entry(DAMAGED_RECORD, UNKNOWN, types=_named("DamagedRecord")),
    ),
)
