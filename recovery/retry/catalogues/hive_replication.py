"""The codes of Hive's replication, classified as its design asks ('Classification of Errors').

There all of them were marked as retriable by their numbers. What waiting does not cure has another number here, in the
range that says so; the old one is known still, and answered with the new one. What was a generic error has a code of
its own: hosts, Ranger and Atlas that can't be reached.
"""

from __future__ import annotations

from dataclasses import dataclass

from recovery.retry.catalogue import Catalogue, Entry
from recovery.retry.codes import GENERIC_ERROR, ErrorCode
from recovery.retry.reasons import SERVICE_NOT_AVAILABLE, SERVICE_RESPONSE_CODE_INDICATED, UNKNOWN, Reason

NAME = "hive_replication"


@dataclass(frozen=True, slots=True)
class HiveCode:
    """A code of the document: what it is here, and the number that it had there, if that was another."""

    code: ErrorCode
    reason: Reason
    was: int | None
    why: str


_SOURCE = "Source of replication (repl.source.for) is not set in the database properties."
_PATTERN = (
    "Invalid pattern for the DB or table name in the replication policy. It should be a valid regex enclosed within "
    "single or double quotes."
)
_BOOTSTRAP = "Load path {0} not valid as target database is bootstrapped from some other path : {1}."

HIVE = (
    HiveCode(
        ErrorCode(10020, "REPL_DATABASE_IS_NOT_SOURCE_OF_REPLICATION", _SOURCE),
        UNKNOWN, 20020, "a property that is not set does not set itself: found before anything is done",
    ),
    HiveCode(
        ErrorCode(10021, "REPL_INVALID_DB_OR_TABLE_PATTERN", _PATTERN),
        UNKNOWN, 20021, "an invalid pattern stays invalid: found before anything is done",
    ),
    HiveCode(
        ErrorCode(40016, "REPL_EVENTS_MISSING_IN_METASTORE", "Notification events are missing in the meta store."),
        UNKNOWN, 20016, "events that were cleaned up do not come back: a bootstrap is needed",
    ),
    HiveCode(
        ErrorCode(40017, "REPL_BOOTSTRAP_LOAD_PATH_NOT_VALID", _BOOTSTRAP),
        UNKNOWN, 20017, "the target stays bootstrapped from the other path",
    ),
    HiveCode(
        ErrorCode(40018, "REPL_FILE_MISSING_FROM_SRC_AND_CM_PATH", "File is missing from both source and cm path."),
        UNKNOWN, 20018, "a file that is in neither place does not come back",
    ),
    HiveCode(
        ErrorCode(40019, "REPL_LOAD_PATH_NOT_FOUND", "Load path does not exist."),
        UNKNOWN, 20019, "a missing path is not cured by waiting",
    ),
    HiveCode(
        ErrorCode(30045, "REPL_FILE_SYSTEM_OPERATION_RETRY", "Replication file system operation retry expired."),
        SERVICE_RESPONSE_CODE_INDICATED, None, "the file system may be back at the next attempt",
    ),
    HiveCode(GENERIC_ERROR, UNKNOWN, None, "nobody knows what it is"),
    HiveCode(
        ErrorCode(30101, "REPL_HOST_NOT_REACHABLE", "A host of the replication can't be reached."),
        SERVICE_NOT_AVAILABLE, None, "hosts come back",
    ),
    HiveCode(
        ErrorCode(30102, "REPL_RANGER_NOT_REACHABLE", "Ranger can't be reached."),
        SERVICE_NOT_AVAILABLE, None, "it was a generic error, and Ranger comes back",
    ),
    HiveCode(
        ErrorCode(30103, "REPL_ATLAS_NOT_REACHABLE", "Atlas can't be reached."),
        SERVICE_NOT_AVAILABLE, None, "it was a generic error, and Atlas comes back",
    ),
)  # fmt: skip
"""All codes of the document, and those that it asks for."""

_BY_NUMBER = {number: one for one in HIVE for number in (one.code.number, one.was) if number is not None}


def by_number(number: int) -> HiveCode | None:
    """The code of this number, whether it is today's or the document's."""
    return _BY_NUMBER.get(number)


# Hive's errors come as text: "… Error 20020: Source of replication …", or by the name of their code.
HIVE_REPLICATION = Catalogue(
    NAME,
    tuple(
        Entry(one.code, one.reason, pattern=rf"\b(?:{one.code.name}|(?i:error(?: code)?)[ :=]+{number})\b")
        for one in HIVE
        if one.code != GENERIC_ERROR
        for number in (f"(?:{one.code.number}|{one.was or one.code.number})",)
    ),
)
