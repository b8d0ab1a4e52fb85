"""Errors of Hive and of its replication, classified as Hive's design asks ('Classification of Errors').

There all codes of the replication were retriable by their numbers. What waiting does not cure has another number here,
in the range that says so; the old number is still understood. Errors that were generic have codes of their own: hosts,
Ranger and Atlas that can't be reached.

Hive's errors reach a client as text. A text is known first by what it says, because versions of Hive have given one
number to different errors, then by the number in one of Hive's forms of a message, and last by the number's range.
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


_SEMANTIC = ErrorCode(10022, "HIVE_STATEMENT_REFUSED", "Hive refused the statement when it compiled it")
_FAILED = ErrorCode(30100, "HIVE_FAILED_FOR_NOW", "Hive failed with an error that its number calls retriable")
_TIMED_OUT = ErrorCode(30104, "HIVE_TIMED_OUT", "A host that Hive asked did not answer in time")
_PERMANENT = ErrorCode(40100, "HIVE_FAILED", "Hive failed with an error that waiting does not cure")
_NOT_ALLOWED = ErrorCode(40101, "HIVE_NOT_ALLOWED", "Ranger, or the file system, does not let Hive do this")

_MISSING = (
    ErrorCode(10001, "HIVE_TABLE_NOT_FOUND", "Hive knows no such table"),
    ErrorCode(10002, "HIVE_COLUMN_NOT_FOUND", "Hive knows no such column"),
    ErrorCode(10004, "HIVE_TABLE_OR_COLUMN_NOT_FOUND", "Hive knows no such table alias or column"),
    ErrorCode(10006, "HIVE_PARTITION_NOT_FOUND", "Hive knows no such partition"),
    ErrorCode(10072, "HIVE_DATABASE_NOT_FOUND", "Hive knows no such database"),
)
"""Semantic errors that have the number of Hive's own table here."""

_PERMANENT_NUMBERS = (
    *(20000, 20004, *range(20006, 20015), 20022, 20023),
    *(30005, 30007, 30009, 30011, 30012, 30014, *range(30019, 30024), *range(30030, 30036), 30042, 30043),
)
"""Numbers of Hive's table in the retriable range whose errors stay: a script, a path or a file format that is wrong, an
operation that is not allowed, a quota that is used up."""

_UNREACHABLE = (
    r"Connection refused|UnknownHostException|NoRouteToHostException|ConnectTimeoutException|HttpHostConnectException"
    r"|failed on connection exception|java\.net\.ConnectException"
)
_HOSTS = (
    r"java\.net\.(?:ConnectException|UnknownHostException|NoRouteToHostException)|HttpHostConnectException"
    r"|ConnectTimeoutException|Call From .* failed on connection exception"
)
"""What Java says of a host that can't be reached."""
_NEAR = 300
"""Characters between a service's name and what says that it can't be reached."""


def _numbered(number: str) -> str:
    """Return a pattern of Hive's forms of a message that has this number."""
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
    """Return a pattern of texts that say that a service beside Hive can't be reached."""
    return (
        rf"(?is)failed to connect to {name} service|\b{name}\b.{{0,{_NEAR}}}?(?:{_UNREACHABLE})"
        rf"|(?:{_UNREACHABLE}).{{0,{_NEAR}}}?\b{name}\b"
    )


def _by_text(one: HiveCode) -> str:
    """Return a pattern of the code's name, and of its text with anything in place of its parameters."""
    text = re.sub(r"\\\{\d\\\}", ".*", re.escape(one.code.text.rstrip(".")))
    return rf"\b{one.code.name}\b|{text}"


def _by_number(one: HiveCode) -> str:
    number = _any_of(dict.fromkeys((one.code.number, one.was or one.code.number)))
    return rf"{_numbered(number)}|\b(?i:error(?: code)?)[ :=]+{number}\b"


_RANGER, _ATLAS, _HOST = (_BY_NUMBER[number] for number in (30102, 30103, 30101))
_CODES = [one for one in HIVE if one.code != GENERIC_ERROR]

HIVE_REPLICATION = Catalogue(
    NAME,
    (
        Entry(_NOT_ALLOWED, UNKNOWN, pattern="(Authorization|Authentication) Failure while communicating to Ranger"),
        *(Entry(one.code, one.reason, pattern=_by_text(one)) for one in _CODES),
        Entry(_RANGER.code, _RANGER.reason, pattern=_service("ranger")),
        Entry(_ATLAS.code, _ATLAS.reason, pattern=_service("atlas")),
        *(Entry(one.code, one.reason, pattern=_by_number(one)) for one in _CODES),
        *(Entry(code, UNKNOWN, pattern=_numbered(str(code.number))) for code in _MISSING),
        Entry(_MISSING[0], UNKNOWN, pattern=r"Line \d+:\d+ Table not found"),
        Entry(_PERMANENT, UNKNOWN, pattern=_numbered(_any_of(_PERMANENT_NUMBERS))),
        # Java's exceptions are in the text of what Hive calls 40000, or gives no number.
        Entry(_HOST.code, _HOST.reason, pattern=_HOSTS),
        Entry(_TIMED_OUT, TIMEOUT_IN_FLIGHT, pattern=r"java\.net\.SocketTimeoutException"),
        Entry(_SEMANTIC, UNKNOWN, pattern=_numbered(r"1\d{4}")),
        Entry(_FAILED, SERVICE_RESPONSE_CODE_INDICATED, pattern=_numbered(r"[23]\d{4}")),
        # 40000 is what Hive does not know either: GENERIC_ERROR, by no entry.
        Entry(_PERMANENT, UNKNOWN, pattern=_numbered(r"4(?!0000)\d{4}")),
    ),
)
