"""What all records are: frozen, in a state, and part of a trace. All times are aware datetimes in UTC, set by the
database's clock.

Arguments and values are JSON texts, not documents: any JSON value is kept to the letter (keys with dots or
dollars, whole numbers of any size), no scan has to decode them, and an update can't mistake them for an
expression. A promise inside one is written `{"$promise": task id}`; see `values`.

A *live* record carries a `recoveryTime`, at which somebody looks at it again; a record *at rest* carries none, so the
partial indexes on `recoveryTime` hold only what is live. Decision:

    waiting ──enqueue──▶ queued ──claim──▶ working ──finish──▶ finished (live until applied, then at rest)
       │                  ▲  ▲                │                 │
       └─eta─▶ delayed ───┘  ├────requeue─────┤                 │
                  ▲          └────restart, of an error──────────┘
                  └────────────retry──────────┘

A `waiting` decision is at rest: nothing is to happen to it until another decision is applied, and that one, live until
it is applied, and the Graph carry the deadlines. A `finished` decision keeps its deadline until its effects have
reached the graph: else a decision whose worker died in between would wait for the Graph's deadline, which moves on
while the siblings are busy.

A record says to which OpenTelemetry trace it belongs. Others than we write that, too, and it is only told of. So
whatever stands there stops nothing: what is no trace context is read as if there were none, and no validator asks
about it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Self

from recovery.records import ids


class Record:
    """Base of the records: frozen; a changed copy is made by `evolve`."""

    __slots__ = ()

    ALWAYS_WRITTEN: ClassVar[frozenset[str]] = frozenset()
    """Fields without which a record is damaged although they have defaults, since these would contradict what updates
    compare: a process without an epoch would be read as of epoch 0, and no update of epoch 0 would ever match it."""
    KEPT_WHEN_EMPTY: ClassVar[frozenset[str]] = frozenset()
    """Fields that are written though nothing is in them."""

    def evolve(self, **changes: Any) -> Self:
        """A copy with these fields changed."""
        return replace(self, **changes)  # type: ignore[type-var]


class OfTask(Record):
    """Base of the records whose id is a task's, `P/T`."""

    __slots__ = ()

    id: str

    @property
    def process_id(self) -> str:
        return ids.split_record_id(self.id)[0]

    @property
    def task_id(self) -> str:
        return ids.split_record_id(self.id)[1]


class ProcessState(StrEnum):
    """What became of a process."""

    RUNNING = "running"
    FINISHED = "finished"
    BROKEN = "broken"
    ABORTED = "aborted"


class DecisionState(StrEnum):
    """Where a task is in its life."""

    WAITING = "waiting"
    DELAYED = "delayed"
    QUEUED = "queued"
    WORKING = "working"
    FINISHED = "finished"


UNENDED_PROCESSES = (ProcessState.RUNNING, ProcessState.BROKEN)
"""States of a process that has not ended: it runs, or it is broken and an operator may set it running again."""

ENDED_PROCESSES = (ProcessState.FINISHED, ProcessState.ABORTED)
"""States of a process that has ended for good: only a restart of the whole begins it again."""
UNSUCCESSFUL_PROCESSES = (ProcessState.BROKEN, ProcessState.ABORTED)
"""States of a process that has an error in the place of a result."""
UNTAKEN_DECISIONS = (DecisionState.WAITING, DecisionState.DELAYED, DecisionState.QUEUED)
"""States of a task that no worker has taken yet, or not again."""
LIVE_DECISIONS = (DecisionState.DELAYED, DecisionState.QUEUED, DecisionState.WORKING)
"""States in which a decision without a deadline is an error (`finished` may be at rest)."""


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
