"""Signs of an error: everything that catalogues use, read without importing the library that raised the error.

A class is recognized by the full names of itself and its superclasses. A server's code, labels, HTTP status and similar
values are read from the attributes in which the libraries store them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

WRITE_CONCERN_ERRORS = "writeConcernErrors"
"""Our own label: MongoDB did not confirm a write that it did."""
RETRY_AFTER = "retry-after"
"""Our own label: the HTTP answer says when to ask again."""
TEXT_END = 5000
"""Characters at each end of an error's text in which patterns are searched for, because searching long texts is slow.
"""
_DUPLICATE_KEY = 11000
"""MongoDB's code for a record that exists already. A bulk write that is sent again gets it for all records written
before."""
_SEQUENCES = (set, frozenset, list, tuple)


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs of an error."""

    types: tuple[str, ...] = ()
    """Full names of its class and of its superclasses, the nearest first."""
    text: str = ""
    number: int | None = None
    """The server's error code, or the operating system's errno."""
    labels: frozenset[str] = frozenset()
    status: int | None = None
    """The HTTP status of the answer."""
    retry_after: float | None = None
    """Seconds that the server asks to wait."""
    service: str | None = None
    """The service that answered, if the server has several, such as Couchbase's `kv` and `query`."""
    operation: str = ""
    """The operation that failed, if the error names it."""
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
"""{class of the context that Couchbase's SDK attaches to an error: its service}."""


def signs_of(error: BaseException) -> Signs:
    """Return the signs of an error. Does not raise, even if the error's own properties raise."""
    context = _get(error, "error_context")
    if (service := _COUCHBASE_SERVICES.get(type(context).__name__)) is not None:
        return _couchbase_signs(error, context, service)
    response = _get(error, "response")
    status = next(
        (
            value
            for value in (
                *(_get(response, "status_code"), _get(response, "status"), _get(error, "status")),
                _botocore_status(response),
            )
            if _is_status(value)
        ),
        None,
    )
    types = types_of(error)
    code = _get(error, "code")
    failed_write_code, answer_code, is_unconfirmed = _mongodb_details(_get(error, "details"))
    number = next(
        (value for value in (failed_write_code, _get(error, "errno"), code, answer_code) if type(value) is int), None
    )
    labels = _get(error, "_error_labels")
    label_set = {value for value in labels if isinstance(value, str)} if isinstance(labels, _SEQUENCES) else set()
    if is_unconfirmed:
        label_set.add(WRITE_CONCERN_ERRORS)
    delays = (_retry_after(_get(source, "headers")) for source in (response, error))
    retry_after = next((seconds for seconds in delays if seconds is not None), None)
    if retry_after is not None:
        label_set.add(RETRY_AFTER)
    return Signs(types, _text(error), number, frozenset(label_set), status, retry_after)


def types_of(error: BaseException) -> tuple[str, ...]:
    """Return the full names of an error's class and of its superclasses, the nearest first."""
    return tuple(f"{cls.__module__}.{cls.__qualname__}" for cls in type(error).__mro__[:-1])


def _couchbase_signs(error: BaseException, context: Any, service: str) -> Signs:
    """Return the signs of an error of Couchbase's SDK, which are in the error's context.

    The labels are the reasons for which the SDK itself has retried, with RFC 49's names, and the attributes of the
    status in the server's error map.
    """
    fields = _mapping(_get(context, "_base"))
    number = fields.get("status_code") if service == "kv" else fields.get("first_error_code")
    status = fields.get("http_status")
    body = [fields.get(key) for key in ("first_error_message", "http_body", "content")]
    text = "\n".join([*(part for part in body if isinstance(part, str)), _text(error)])
    return Signs(
        types=types_of(error),
        text=_ends(text),
        number=number if type(number) is int else None,
        labels=frozenset(_couchbase_labels(fields)),
        status=status if _is_status(status) else None,
        service=service,
        is_idempotent=_is_read_only(service, fields),
    )


def _couchbase_labels(fields: Mapping[str, Any]) -> set[str]:
    reasons = fields.get("retry_reasons")
    names = reasons if isinstance(reasons, _SEQUENCES) else ()
    labels = {name.upper().replace("KEY_VALUE_", "KV_") for name in names if isinstance(name, str)}
    attributes = _mapping(fields.get("error_map_info")).get("attributes")
    if isinstance(attributes, _SEQUENCES):
        labels |= {name.replace("_", "-") for name in attributes if isinstance(name, str)}
    return labels


def _is_read_only(service: str, fields: Mapping[str, Any]) -> bool:
    """Return whether the request is in RFC 49's 'Idempotent Operation List', as far as the context shows."""
    match service:
        case "search" | "view":
            return True
        case "manager":
            return str(fields.get("method", "")).upper() == "GET"
        case "query" | "analytics":
            try:
                return _mapping(json.loads(str(fields.get("parameters")))).get("readonly") is True
            except (ValueError, RecursionError):
                return False
    return False


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _botocore_status(response: Any) -> Any:
    """Return the HTTP status of an answer that botocore keeps as a dict."""
    metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
    return metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None


def _mongodb_details(details: Any) -> tuple[Any, Any, bool]:
    """Return the codes in MongoDB's answer.

    Returns:
        The code of the first failed write of a bulk, of a duplicate only if no other write failed; the code of the
            answer,
            which pymongo's NotPrimaryError has only there; and whether a write was not confirmed.
    """
    if not isinstance(details, dict):
        return None, None, False
    if "writeErrors" in details:
        failures = details["writeErrors"] if isinstance(details["writeErrors"], list | tuple) else ()
        codes = [failure.get("code") for failure in failures if isinstance(failure, dict)]
        first = next((code for code in codes if code != _DUPLICATE_KEY), next(iter(codes), None))
        return first, None, bool(details.get("writeConcernErrors"))
    concern_error = details.get("writeConcernError")
    if "code" not in details and isinstance(concern_error, dict):
        return None, concern_error.get("code"), True
    return None, details.get("code"), False


def _is_status(value: Any) -> bool:
    return type(value) is int and 100 <= value < 600


def _get(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except BaseException:  # the property may be anybody's code, and even call sys.exit()
        return None


def _text(error: BaseException) -> str:
    """Return the beginning and the end of an error's text, because libraries name the kind of an error in either."""
    try:
        return _ends(str(error))
    except BaseException:  # the error's own __str__ may raise
        return ""


def _ends(text: str) -> str:
    return text if len(text) <= 2 * TEXT_END else f"{text[:TEXT_END]}\n{text[-TEXT_END:]}"


def _retry_after(headers: Any) -> float | None:
    """Return the seconds that a server asks to wait; None if it does not, or the value is invalid.

    A date is compared with the answer's own date instead of our clock.
    """
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
        answer_date = headers.get("Date") or headers.get("date")
        return max(0.0, (parsedate_to_datetime(value) - parsedate_to_datetime(answer_date)).total_seconds())
