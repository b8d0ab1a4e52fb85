"""What a record says of the OpenTelemetry trace that it belongs to.

Others than we write it, too, and it is only told of. So whatever stands there stops nothing: what is no trace context
is read as if there were none, and no validator asks about it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from recovery.records.record import Record

_PARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
STATE_LENGTH = 512
"""Characters of a `tracestate`: what the W3C's recommendation asks of whoever hands it on. A longer one is left out."""
TYPE_LENGTH = 100
"""Characters of a process type's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(Record):
    """The span that what comes of a record belongs under: a W3C trace context."""

    parent: str
    """Its `traceparent`: version, ids of the trace and the span, and whether it is sampled."""
    state: str | None = None
    """Its `tracestate`, if it has one."""
    type: str | None = None
    """The process type: tasks don't know it otherwise. Absent where it is not sampled."""

    @property
    def trace_id(self) -> str:
        """Of the trace: 32 hexadecimal digits."""
        return self.parent.split("-")[1]

    @property
    def is_sampled(self) -> bool:
        """Whether whoever began it wants its spans."""
        return bool(int(self.parent[-2:], 16) & 1)


def trace_of(value: object) -> Trace | None:
    """The trace of what stands in a document; None where that is none."""
    if type(value) is not dict:
        return None
    parent, state, kind = value.get("parent"), value.get("state"), value.get("type")
    if type(parent) is not str or not _PARENT.fullmatch(parent):
        return None
    return Trace(parent=parent, state=_short(state, STATE_LENGTH), type=_short(kind, TYPE_LENGTH))


def _short(value: object, most: int) -> str | None:
    return value if type(value) is str and 0 < len(value) <= most and value.isprintable() else None
