"""Reads from an error everything that catalogues look at, without importing the library that raised it.

A class is recognised by the full names of itself and its superclasses. A server's code, labels, HTTP status and the
like are read from the attributes in which the libraries keep them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

WRITE_CONCERN_ERRORS = "writeConcernErrors"
"""A label of ours: what MongoDB wrote was not confirmed."""
RETRY_AFTER = "retry-after"
"""A label of ours: the HTTP answer says when to ask again."""
TEXT_END = 5000
"""Characters at each end of an error's text that patterns are searched in: to search a megabyte takes half a second."""
_DUPLICATE_KEY = 11000
"""MongoDB's code of a record that is there already: of a bulk that is sent again, all that were written."""
_SEQUENCES = (set, frozenset, list, tuple)


@dataclass(frozen=True, slots=True)
class Signs:
    """What can be seen of an error."""

    types: tuple[str, ...] = ()
    """Full names of its class and of its superclasses, the nearest first."""
    text: str = ""
    number: int | None = None
    """A server's own code, or the operating system's errno."""
    labels: frozenset[str] = frozenset()
    status: int | None = None
    """Of an HTTP answer."""
    retry_after: float | None = None
    """Seconds that the server asks to wait."""
    service: str | None = None
    """The service that answered, where a server has several: `kv`, `query` and so on of Couchbase."""
    operation: str = ""
    """The operation that failed, where the error names it."""
    is_idempotent: bool = False
    """Whether the error shows that the failed request could not change anything."""


_COUCHBASE_SERVICES = {
    "KeyValueErrorContext": "kv",
    "SubdocumentErrorContext": "kv",
    "QueryErrorContext": "query",
    "AnalyticsErrorContext": "analytics",
    "SearchErrorContext": "search",
    "ViewErrorContext": "view",
    "ManagementErrorContext": "manager",
}
"""Services by the class of the context that Couchbase's SDK attaches to its errors."""


def signs_of(error: BaseException) -> Signs:
    """Return what can be seen of an error. Does not raise, whatever the error's class does when it is asked."""
    context = _get(error, "error_context")
    if (service := _COUCHBASE_SERVICES.get(type(context).__name__)) is not None:
        return _of_couchbase(error, context, service)
    response = _get(error, "response")
    status = next(
        (
            value
            for value in (
                *(_get(response, "status_code"), _get(response, "status"), _get(error, "status")),
                _status_of_botocore(response),
            )
            if _is_status(value)
        ),
        None,
    )
    types = types_of(error)
    code = _get(error, "code")
    failed, answered, unconfirmed = _of_details(_get(error, "details"))
    number = next((one for one in (failed, _get(error, "errno"), code, answered) if type(one) is int), None)
    labels = _get(error, "_error_labels")
    said = {one for one in labels if isinstance(one, str)} if isinstance(labels, _SEQUENCES) else set()
    if unconfirmed:
        said.add(WRITE_CONCERN_ERRORS)
    asked = (_retry_after(_get(thing, "headers")) for thing in (response, error))
    retry_after = next((seconds for seconds in asked if seconds is not None), None)
    if retry_after is not None:
        said.add(RETRY_AFTER)
    return Signs(types, _text(error), number, frozenset(said), status, retry_after)


def types_of(error: BaseException) -> tuple[str, ...]:
    """Return the full names of an error's class and of its superclasses, the nearest first."""
    return tuple(f"{cls.__module__}.{cls.__qualname__}" for cls in type(error).__mro__[:-1])


def _of_couchbase(error: BaseException, context: Any, service: str) -> Signs:
    """Return the signs of an error of Couchbase's SDK, which are in its context.

    The labels are the reasons for which the SDK itself has retried, named as in RFC 49, and the attributes that the
    server's error map has for the status.
    """
    held = _mapping(_get(context, "_base"))
    number = held.get("status_code") if service == "kv" else held.get("first_error_code")
    status = held.get("http_status")
    body = [held.get(key) for key in ("first_error_message", "http_body", "content")]
    text = "\n".join([*(part for part in body if isinstance(part, str)), _text(error)])
    return Signs(
        types=types_of(error),
        text=_ends(text),
        number=number if type(number) is int else None,
        labels=frozenset(_couchbase_labels(held)),
        status=status if _is_status(status) else None,
        service=service,
        is_idempotent=_is_read_only(service, held),
    )


def _couchbase_labels(held: Mapping[str, Any]) -> set[str]:
    reasons = held.get("retry_reasons")
    names = reasons if isinstance(reasons, _SEQUENCES) else ()
    labels = {name.upper().replace("KEY_VALUE_", "KV_") for name in names if isinstance(name, str)}
    attributes = _mapping(held.get("error_map_info")).get("attributes")
    if isinstance(attributes, _SEQUENCES):
        labels |= {name.replace("_", "-") for name in attributes if isinstance(name, str)}
    return labels


def _is_read_only(service: str, held: Mapping[str, Any]) -> bool:
    """Return whether the request is in RFC 49's 'Idempotent Operation List', as far as the context shows it."""
    match service:
        case "search" | "view":
            return True
        case "manager":
            return str(held.get("method", "")).upper() == "GET"
        case "query" | "analytics":
            try:
                return _mapping(json.loads(str(held.get("parameters")))).get("readonly") is True
            except (ValueError, RecursionError):
                return False
    return False


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _status_of_botocore(response: Any) -> Any:
    """Return the status of an answer that botocore keeps as a dict."""
    told = response.get("ResponseMetadata") if isinstance(response, dict) else None
    return told.get("HTTPStatusCode") if isinstance(told, dict) else None


def _of_details(details: Any) -> tuple[Any, Any, bool]:
    """Return what MongoDB answered.

    Returns:
        The code of the first write of a bulk that failed, of a duplicate only if there is no other; the code of the
        answer, which pymongo's NotPrimaryError has nowhere else; and whether a write was not confirmed.
    """
    if not isinstance(details, dict):
        return None, None, False
    if "writeErrors" in details:
        failures = details["writeErrors"] if isinstance(details["writeErrors"], list | tuple) else ()
        failed = [one.get("code") for one in failures if isinstance(one, dict)]
        first = next((code for code in failed if code != _DUPLICATE_KEY), next(iter(failed), None))
        return first, None, bool(details.get("writeConcernErrors"))
    unconfirmed = details.get("writeConcernError")
    if "code" not in details and isinstance(unconfirmed, dict):
        return None, unconfirmed.get("code"), True
    return None, details.get("code"), False


def _is_status(value: Any) -> bool:
    return type(value) is int and 100 <= value < 600


def _get(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except BaseException:  # a property of somebody's, which may as well call sys.exit()
        return None


def _text(error: BaseException) -> str:
    """Return the beginning and the end of an error's text: libraries name the kind of an error in one of them."""
    try:
        return _ends(str(error))
    except BaseException:  # its own __str__
        return ""


def _ends(text: str) -> str:
    return text if len(text) <= 2 * TEXT_END else f"{text[:TEXT_END]}\n{text[-TEXT_END:]}"


def _retry_after(headers: Any) -> float | None:
    """Return what a server asks for, in seconds; a date is compared with the answer's own, and not with our clock."""
    try:
        value = headers.get("Retry-After") or headers.get("retry-after")
        seconds = _seconds(value, headers)
    except Exception:
        return None
    return seconds if 0 <= seconds < 86_400 * 365 else None


def _seconds(value: Any, headers: Any) -> float:
    try:
        return float(value)
    except ValueError:
        answered = headers.get("Date") or headers.get("date")
        return max(0.0, (parsedate_to_datetime(value) - parsedate_to_datetime(answered)).total_seconds())
