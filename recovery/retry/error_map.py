"""A server's own map of its errors (RFC 49, 'KV Error Map Handling'), which any catalogue may declare.

It is asked for errors that no entry of the catalogue knows:

    a retry is indicated      the error goes to the orchestrator, whose strategy decides if and when
    anything else             it is cancelled, and the orchestrator is not asked: not indicated, or not in the map

What the map says of intervals, ceilings and durations is not used, since the strategy has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recovery.errors import InputError
from recovery.records import given
from recovery.retry.codes import ErrorCode
from recovery.retry.reasons import KV_ERROR_MAP_RETRY_INDICATED, UNKNOWN, Reason

RETRY_INDICATED = ErrorCode(20005, "ERROR_MAP_RETRY_INDICATED", "The server's error map indicates a retry")
NOT_INDICATED = ErrorCode(40010, "ERROR_MAP_NO_RETRY", "The server's error map indicates no retry")

_INDICATES = {"retry-now", "retry-later"}


@dataclass(frozen=True, slots=True)
class ErrorMap:
    """What a server says of its errors. Raises InputError for what is no map."""

    errors: Mapping[int, frozenset[str]]
    """{a server's code: its attributes}; `retry-now` and `retry-later` indicate a retry."""
    types: frozenset[str]
    """Full names of the classes of errors whose numbers are these."""

    def __post_init__(self) -> None:
        if not self.types:
            raise InputError("an error map says by no type whose numbers it has; give it one")

    @classmethod
    def read(cls, document: Any, types: frozenset[str]) -> ErrorMap:
        """A map in the form in which Couchbase sends it: `{"errors": {"86": {"attrs": ["retry-later"], …}}}`, with
        hexadecimal codes."""
        found = document.get("errors") if isinstance(document, Mapping) else None
        if not isinstance(found, Mapping):
            raise InputError(f"{given.shown(document)} is no error map; it has to have 'errors', by their codes")
        return cls({_code(code): _attributes(code, said) for code, said in found.items()}, types)

    def says(self, number: int) -> tuple[ErrorCode, Reason]:
        """The code and reason of an error with this number."""
        if self.errors.get(number, frozenset()) & _INDICATES:
            return RETRY_INDICATED, KV_ERROR_MAP_RETRY_INDICATED
        return NOT_INDICATED, UNKNOWN


def _code(text: Any) -> int:
    try:
        return int(text, 16)
    except (ValueError, TypeError):
        raise InputError(f"an error map has the code {given.shown(text)}, which is no hexadecimal number") from None


def _attributes(code: str, said: Any) -> frozenset[str]:
    attributes = said.get("attrs") if isinstance(said, Mapping) else None
    if not isinstance(attributes, list | tuple) or not all(isinstance(one, str) for one in attributes):
        raise InputError(f"an error map has no 'attrs', a list of texts, for {code}: {given.shown(said)}")
    return frozenset(attributes)
