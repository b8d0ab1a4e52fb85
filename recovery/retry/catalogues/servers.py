"""What our own errors of servers are, for our own calls: by the driver's error that each was raised from, and where
there is none (a check that tells in its own words) by their kind. Codes from 20002 on."""

from __future__ import annotations

from recovery.retry.catalogue import Catalogue, Classified, Entry, classify
from recovery.retry.catalogues.mongodb import MONGODB
from recovery.retry.catalogues.redis import REDIS
from recovery.retry.codes import ErrorCode
from recovery.retry.reasons import NODE_NOT_AVAILABLE, SERVICE_NOT_AVAILABLE, TIMEOUT_IN_FLIGHT

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
