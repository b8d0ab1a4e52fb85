"""The states of the records, and which of them are live.

A *live* record carries a `recoveryTime`, at which somebody looks at it again; a record *at rest* carries
none, so the partial indexes on `recoveryTime` hold only what is live.

Decision:

    waiting ──enqueue──▶ queued ──claim──▶ working ──finish──▶ finished (live until applied, then at rest)
       │                  ▲  ▲                │                 │
       └─eta─▶ delayed ───┘  ├────requeue─────┤                 │
                  ▲          └────restart, of an error──────────┘
                  └────────────retry──────────┘

A `waiting` decision is at rest: nothing is to happen to it until another decision is applied, and that one,
live until it is applied, and the Graph carry the deadlines. A `finished` decision keeps its deadline until
its effects have reached the graph: else a decision whose worker died in between would wait for the Graph's
deadline, which moves on while the siblings are busy.
"""

from __future__ import annotations

from enum import StrEnum


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
