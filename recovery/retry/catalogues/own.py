"""What errors of `recovery.errors` are: those that actors get from this library, and those of our own calls to servers.

`OWN` is for actors: codes 10101, from 25000 and from 45000 on. That a server is away is not in it, because such an
error was raised from the driver's error, which says more. `by_driver` is for our own calls: an error is what the
driver's error was that it was raised from, else what its kind says. Codes from 20002 on.
"""

from __future__ import annotations

from recovery.retry.catalogue import Catalogue, Classified, Entry, classify
from recovery.retry.catalogues.mongodb import MONGODB
from recovery.retry.catalogues.redis import REDIS
from recovery.retry.codes import ErrorCode
from recovery.retry.reasons import NODE_NOT_AVAILABLE, SERVICE_NOT_AVAILABLE, TIMEOUT_IN_FLIGHT, UNKNOWN

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


AWAY = ErrorCode(20002, "SERVER_AWAY", "A server that we need does not answer")
TIMED_OUT = ErrorCode(20003, "SERVER_TIMED_OUT", "A server that we need did not answer in time")
BROKER = ErrorCode(20004, "BROKER_FAILED", "Redis did not do what it was asked for")

_DRIVERS = (MONGODB, REDIS)
_OURS = Catalogue(
    "servers",
    (
        Entry(TIMED_OUT, TIMEOUT_IN_FLIGHT, types=frozenset({"recovery.errors.StoreTimeout"})),
        Entry(AWAY, NODE_NOT_AVAILABLE, types=frozenset({"recovery.errors.ServerUnavailable"})),
        Entry(BROKER, SERVICE_NOT_AVAILABLE, types=frozenset({"recovery.errors.BrokerError"})),
    ),
)


def by_driver(error: BaseException) -> Classified:
    """What an error of a server is. Of no use for actors: they are asked with all catalogues that are in use."""
    found = classify(error, _DRIVERS)
    return found if found.catalogue is not None else classify(error, (_OURS,))
