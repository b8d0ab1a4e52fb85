"""Time zones for what was read without them, since pymongo takes 0.5 µs to give a time its zone.

A page of which little is looked at is read naive, and so are records that have many times.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from recovery.store.client import Document

_WITH_TIMES = frozenset({datetime, dict, list})


def aware(document: Document) -> Document:
    """The same document, all of its times now in UTC."""
    for key, value in document.items():
        if type(value) in _WITH_TIMES:
            document[key] = _in_utc(value)
    return document


def _in_utc(value: Any) -> Any:
    kind = type(value)
    if kind is datetime:
        # A sixth of what `replace` takes.
        return datetime.combine(value.date(), value.time(), UTC)
    if kind is dict:
        return aware(value)
    return [_in_utc(one) if type(one) in _WITH_TIMES else one for one in value]
