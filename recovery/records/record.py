"""The base classes of all records, the states of processes and tasks, and the trace context of records.

All times are aware datetimes in UTC, set by the database's clock.

Arguments and values are stored as JSON texts, not as documents. A text keeps any JSON value unchanged (keys with dots
or dollars, whole numbers of any size), scans need not decode it, and an update cannot mistake it for an expression. A
promise in a value is written `{"$promise": task id}`; see `values`.

A *live* record has a deadline (`recoveryTime`), at which a scanner looks at it again. A record *at rest* has none, so
the partial indexes on `recoveryTime` contain only live records. The states of a decision:

    waiting ──enqueue──▶ queued ──claim──▶ working ──finish──▶ finished (live until applied, then at rest)
       │                  ▲  ▲                │                 │
       └─eta─▶ delayed ───┘  ├────requeue─────┤                 │
                  ▲          └────restart, of an error──────────┘
                  └────────────retry──────────┘

A `waiting` decision is at rest, because nothing happens to it until another decision is applied. That other decision,
which is live until it is applied, and the graph have the deadlines. A `finished` decision keeps its deadline until its
effects have reached the graph. Otherwise a decision whose worker died in between would wait for the graph's deadline,
which is postponed while the task's siblings make progress.

A record contains the OpenTelemetry trace context that it belongs to. Other programs may write this field, and it is
used for tracing only. Therefore an invalid trace context is read as absent, and validators do not check it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Self

from recovery.records import ids


class Record:
    """Base of all records, which are frozen dataclasses. `evolve` returns a changed copy."""

    __slots__ = ()

    ALWAYS_WRITTEN: ClassVar[frozenset[str]] = frozenset()
    """Fields that every document must have, although they have defaults. A missing field must not be read as its
    default, because updates compare it: a process without an epoch would be read as in epoch 0, and no update of epoch
    0 would ever match its document."""
    KEPT_WHEN_EMPTY: ClassVar[frozenset[str]] = frozenset()
    """Collection fields that are written even if they are empty."""

    def evolve(self, **changes: Any) -> Self:
        """Return a copy with these fields changed."""
        return replace(self, **changes)  # type: ignore[type-var]


class OfTask(Record):
    """Base of the records whose id is a task's, that is `P/T`."""

    __slots__ = ()

    id: str

    @property
    def process_id(self) -> str:
        return ids.split_record_id(self.id)[0]

    @property
    def task_id(self) -> str:
        return ids.split_record_id(self.id)[1]


class ProcessState(StrEnum):
    """The state of a process."""

    RUNNING = "running"
    FINISHED = "finished"
    BROKEN = "broken"
    ABORTED = "aborted"


class DecisionState(StrEnum):
    """The state of a task."""

    WAITING = "waiting"
    DELAYED = "delayed"
    QUEUED = "queued"
    WORKING = "working"
    FINISHED = "finished"


UNENDED_PROCESSES = (ProcessState.RUNNING, ProcessState.BROKEN)
"""States of a process that has not ended: it runs, or it is broken and an operator may restart its failed tasks."""

ENDED_PROCESSES = (ProcessState.FINISHED, ProcessState.ABORTED)
"""States of a process that has ended for good. Only an operator's restart can begin a new epoch of it."""
UNSUCCESSFUL_PROCESSES = (ProcessState.BROKEN, ProcessState.ABORTED)
"""States of a process that has an error instead of a result."""
UNTAKEN_DECISIONS = (DecisionState.WAITING, DecisionState.DELAYED, DecisionState.QUEUED)
"""States of a task that is neither claimed nor finished."""
LIVE_DECISIONS = (DecisionState.DELAYED, DecisionState.QUEUED, DecisionState.WORKING)
"""States in which a decision must have a deadline. A `finished` decision may be live or at rest."""


_PARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
STATE_LENGTH = 512
"""Maximum length of a `tracestate`, in characters: what the W3C recommendation requires to be propagated. A longer one
is ignored."""
TYPE_LENGTH = 100
"""Maximum length of a process type's name, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(Record):
    """The W3C trace context of the span that is the parent of a record's spans."""

    parent: str
    """The `traceparent`: version, trace id, span id, and whether the trace is sampled."""
    state: str | None = None
    """The `tracestate`, if any."""
    type: str | None = None
    """The process type, which tasks do not have otherwise. Absent if the trace is not sampled."""

    @property
    def trace_id(self) -> str:
        """Return the trace id, 32 hexadecimal digits."""
        return self.parent.split("-")[1]

    @property
    def is_sampled(self) -> bool:
        """Return whether the trace is sampled."""
        return bool(int(self.parent[-2:], 16) & 1)


def trace_of(value: object) -> Trace | None:
    """Return the trace of a document's field; None if the value is not a valid trace context."""
    if type(value) is not dict:
        return None
    parent, state, kind = value.get("parent"), value.get("state"), value.get("type")
    if type(parent) is not str or not _PARENT.fullmatch(parent):
        return None
    return Trace(parent=parent, state=_short(state, STATE_LENGTH), type=_short(kind, TYPE_LENGTH))


def _short(value: object, max_length: int) -> str | None:
    return value if type(value) is str and 0 < len(value) <= max_length and value.isprintable() else None
