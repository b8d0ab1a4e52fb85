"""Errors of Hive and its replication, classified as Hive's design asks ('Classification of Errors').

In Hive, the numbers of all replication errors were in the retriable range. Here, an error that waiting does not cure
has a number in another range. The old number is still understood. Some errors that were generic have their own codes:
unreachable hosts, Ranger and Atlas.

Hive's errors reach a client as text. A text is recognized first by its wording, because versions of Hive have given one
number to different errors; then by the number in one of Hive's message formats; and finally by the number's range.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from recovery.retry.catalogue import Catalogue, Entry
from recovery.retry.codes import GENERIC_ERROR, ErrorCode
from recovery.retry.reasons import (
    SERVICE_NOT_AVAILABLE,
    SERVICE_RESPONSE_CODE_INDICATED,
    TIMEOUT_IN_FLIGHT,
    UNKNOWN,
    Reason,
)

NAME = "hive_replication"


@dataclass(frozen=True, slots=True)
class HiveCode:
    """A code of Hive's design: its code and reason here, and `was`, its number in the design if that was different."""

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
        UNKNOWN, 20020, "a person must set the property; the error is detected before anything is done",
    ),
    HiveCode(
        ErrorCode(10021, "REPL_INVALID_DB_OR_TABLE_PATTERN", _PATTERN),
        UNKNOWN, 20021, "an invalid pattern stays invalid; the error is detected before anything is done",
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
        UNKNOWN, 20018, "a file that is missing in both places does not come back",
    ),
    HiveCode(
        ErrorCode(40019, "REPL_LOAD_PATH_NOT_FOUND", "Load path does not exist."),
        UNKNOWN, 20019, "a missing path is not cured by waiting",
    ),
    HiveCode(
        ErrorCode(30045, "REPL_FILE_SYSTEM_OPERATION_RETRY", "Replication file system operation retry expired."),
        SERVICE_RESPONSE_CODE_INDICATED, None, "the file system may be back at the next attempt",
    ),
    HiveCode(GENERIC_ERROR, UNKNOWN, None, "the cause is unknown"),
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
"""All codes of Hive's design, including the new codes that it asks for."""

_BY_NUMBER = {
    number: hive_code for hive_code in HIVE for number in (hive_code.code.number, hive_code.was) if number is not None
}


def by_number(number: int) -> HiveCode | None:
    """Return the code with this number, whether the number is the present one or the one in Hive's design."""
    return _BY_NUMBER.get(number)


_SEMANTIC = ErrorCode(10022, "HIVE_STATEMENT_REFUSED", "Hive refused the statement when it compiled it")
_FAILED = ErrorCode(30100, "HIVE_FAILED_FOR_NOW", "Hive failed with an error whose number is in the retriable range")
_TIMED_OUT = ErrorCode(30104, "HIVE_TIMED_OUT", "A host that Hive asked did not answer in time")
_PERMANENT = ErrorCode(40100, "HIVE_FAILED", "Hive failed with an error that waiting does not cure")
_NOT_ALLOWED = ErrorCode(40101, "HIVE_NOT_ALLOWED", "Ranger, or the file system, denies Hive the access")

_MISSING = (
    ErrorCode(10001, "HIVE_TABLE_NOT_FOUND", "Hive has no such table"),
    ErrorCode(10002, "HIVE_COLUMN_NOT_FOUND", "Hive has no such column"),
    ErrorCode(10004, "HIVE_TABLE_OR_COLUMN_NOT_FOUND", "Hive has no such table alias or column"),
    ErrorCode(10006, "HIVE_PARTITION_NOT_FOUND", "Hive has no such partition"),
    ErrorCode(10072, "HIVE_DATABASE_NOT_FOUND", "Hive has no such database"),
)
"""Semantic errors that keep the number of Hive's own table."""

_PERMANENT_NUMBERS = (
    *(20000, 20004, *range(20006, 20015), 20022, 20023),
    *(30005, 30007, 30009, 30011, 30012, 30014, *range(30019, 30024), *range(30030, 30036), 30042, 30043),
)
"""Numbers in Hive's retriable range whose errors are permanent.

Examples are a wrong script, path or file format, an operation that is not allowed, and an exhausted quota.
"""

_UNREACHABLE = (
    r"Connection refused|UnknownHostException|NoRouteToHostException|ConnectTimeoutException|HttpHostConnectException"
    r"|failed on connection exception|java\.net\.ConnectException"
)
_HOSTS = (
    r"java\.net\.(?:ConnectException|UnknownHostException|NoRouteToHostException)|HttpHostConnectException"
    r"|ConnectTimeoutException|Call From .* failed on connection exception"
)
"""Java's texts for an unreachable host."""
_NEAR = 300
"""Maximum number of characters between a service's name and the text that it is unreachable."""


def _numbered(number: str) -> str:
    """Return a pattern for Hive's message formats with this number."""
    forms = (
        rf"Exception:? \[Error {number}\]",  # SemanticException [Error 10001]: Line 1:14 Table not found 'x'
        rf"return code {number} from ",  # Execution Error, return code 20018 from org.apache.….ReplLoadTask. File …
        rf"errorCode={number}\b",  # TStatus(statusCode=3, …, errorCode=10001, errorMessage=…)
        rf"state=\w{{5}}, ?code={number}\)",  # (state=42S02,code=10001), of JDBC
    )
    return "|".join(forms)


def _any_of(numbers: Iterable[int]) -> str:
    return f"(?:{'|'.join(map(str, numbers))})"


def _service(name: str) -> str:
    """Return a pattern for texts which say that another service is unreachable."""
    return (
        rf"(?is)failed to connect to {name} service|\b{name}\b.{{0,{_NEAR}}}?(?:{_UNREACHABLE})"
        rf"|(?:{_UNREACHABLE}).{{0,{_NEAR}}}?\b{name}\b"
    )


def _by_text(hive_code: HiveCode) -> str:
    """Return a pattern for the code's name, or for its text with anything in place of its parameters."""
    text = re.sub(r"\\\{\d\\\}", ".*", re.escape(hive_code.code.text.rstrip(".")))
    return rf"\b{hive_code.code.name}\b|{text}"


def _by_number(hive_code: HiveCode) -> str:
    pattern = _any_of(dict.fromkeys((hive_code.code.number, hive_code.was or hive_code.code.number)))
    return rf"{_numbered(pattern)}|\b(?i:error(?: code)?)[ :=]+{pattern}\b"


_RANGER, _ATLAS, _HOST = (_BY_NUMBER[number] for number in (30102, 30103, 30101))
_CODES = [hive_code for hive_code in HIVE if hive_code.code != GENERIC_ERROR]

HIVE_REPLICATION = Catalogue(
    NAME,
    (
        Entry(_NOT_ALLOWED, UNKNOWN, pattern="(Authorization|Authentication) Failure while communicating to Ranger"),
        *(Entry(hive_code.code, hive_code.reason, pattern=_by_text(hive_code)) for hive_code in _CODES),
        Entry(_RANGER.code, _RANGER.reason, pattern=_service("ranger")),
        Entry(_ATLAS.code, _ATLAS.reason, pattern=_service("atlas")),
        *(Entry(hive_code.code, hive_code.reason, pattern=_by_number(hive_code)) for hive_code in _CODES),
        *(Entry(code, UNKNOWN, pattern=_numbered(str(code.number))) for code in _MISSING),
        Entry(_MISSING[0], UNKNOWN, pattern=r"Line \d+:\d+ Table not found"),
        Entry(_PERMANENT, UNKNOWN, pattern=_numbered(_any_of(_PERMANENT_NUMBERS))),
        # Errors that Hive numbers 40000, or does not number, contain Java's exceptions in their text.
        Entry(_HOST.code, _HOST.reason, pattern=_HOSTS),
        Entry(_TIMED_OUT, TIMEOUT_IN_FLIGHT, pattern=r"java\.net\.SocketTimeoutException"),
        Entry(_SEMANTIC, UNKNOWN, pattern=_numbered(r"1\d{4}")),
        Entry(_FAILED, SERVICE_RESPONSE_CODE_INDICATED, pattern=_numbered(r"[23]\d{4}")),
        # 40000 is Hive's number for unknown errors. No entry matches it, so it is a GENERIC_ERROR here, too.
        Entry(_PERMANENT, UNKNOWN, pattern=_numbered(r"4(?!0000)\d{4}")),
    ),
)
