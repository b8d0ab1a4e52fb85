"""What can be seen of an error, without its library: a class is known by its name, with its superclasses. What an error
carries (a server's code, labels, an HTTP status) is read from where the libraries keep it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WRITE_CONCERN_ERRORS = "writeConcernErrors"
"""A label of ours: what MongoDB wrote was not confirmed."""
TEXT_END = 5000
"""Characters at each end of an error's text that patterns are searched in: to search a megabyte takes half a second."""
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


def signs_of(error: BaseException) -> Signs:
    """Return what can be seen of an error. Does not raise, whatever the error's class does when it is asked."""
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
    types = tuple(f"{one.__module__}.{one.__qualname__}" for one in type(error).__mro__[:-1])
    code = _get(error, "code")
    failed, answered, unconfirmed = _of_details(_get(error, "details"))
    number = next((one for one in (failed, _get(error, "errno"), code, answered) if type(one) is int), None)
    labels = _get(error, "_error_labels")
    said = {one for one in labels if isinstance(one, str)} if isinstance(labels, _SEQUENCES) else set()
    if unconfirmed:
        said.add(WRITE_CONCERN_ERRORS)
    asked = (_retry_after(_get(thing, "headers")) for thing in (response, error))
    retry_after = next((seconds for seconds in asked if seconds is not None), None)
    return Signs(types, _text(error), number, frozenset(said), status, retry_after)


def _status_of_botocore(response: Any) -> Any:
    """Return the status of an answer that botocore keeps as a dict."""
    told = response.get("ResponseMetadata") if isinstance(response, dict) else None
    return told.get("HTTPStatusCode") if isinstance(told, dict) else None


def _of_details(details: Any) -> tuple[Any, Any, bool]:
    """Of what MongoDB answered: the code of the first write of a bulk that failed; the code of the answer, which
    pymongo's NotPrimaryError has nowhere else; and whether what was written was not confirmed."""
    if not isinstance(details, dict):
        return None, None, False
    if "writeErrors" in details:
        failures = details["writeErrors"] if isinstance(details["writeErrors"], list | tuple) else ()
        failed = [one.get("code") for one in failures if isinstance(one, dict)]
        return next(iter(failed), None), None, bool(details.get("writeConcernErrors"))
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
        text = str(error)
        return text if len(text) <= 2 * TEXT_END else f"{text[:TEXT_END]}\n{text[-TEXT_END:]}"
    except BaseException:  # its own __str__
        return ""


def _retry_after(headers: Any) -> float | None:
    """Seconds; the other form of the header, a date, is by a clock that need not be ours."""
    try:
        value = headers.get("Retry-After") or headers.get("retry-after")
        seconds = float(value)
    except Exception:
        return None
    return seconds if 0 <= seconds < 86_400 * 365 else None
