"""What rules look at, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from recovery.errors import DamagedRecord
from recovery.limits import FAR_OFF
from recovery.records import ActorPreferences, Decision, Graph, Process, ProcessTypePreferences, QueueStatistics
from recovery.records.ids import worker_of


class Rule(StrEnum):
    """The names of the failure map (docs/failure-map.md)."""

    WORK_TIMEOUT = "WORK_TIMEOUT"
    WORKER_LOST = "WORKER_LOST"
    TASK_TIMEOUT = "TASK_TIMEOUT"
    DUE = "DUE"
    DEADLINE_MISSING = "DEADLINE_MISSING"
    SERVERS_WERE_DOWN = "SERVERS_WERE_DOWN"
    NO_ACTORS = "NO_ACTORS"
    ACTORS_LAG = "ACTORS_LAG"
    DECISION_NOT_APPLIED = "DECISION_NOT_APPLIED"
    CHILDREN_MISSING = "CHILDREN_MISSING"
    READY_NOT_QUEUED = "READY_NOT_QUEUED"
    MESSAGE_LOST = "MESSAGE_LOST"
    START_NOT_REGISTERED = "START_NOT_REGISTERED"
    GRAPH_MISSING = "GRAPH_MISSING"
    FINISHED_UNDECIDED = "FINISHED_UNDECIDED"
    TASK_MISSING = "TASK_MISSING"
    DECISION_MISSING = "DECISION_MISSING"
    DEAD_LINK = "DEAD_LINK"
    CYCLE = "CYCLE"
    FINISH_NOT_RECORDED = "FINISH_NOT_RECORDED"
    FINISHED_TOO_EARLY = "FINISHED_TOO_EARLY"
    PROCESS_TIMEOUT = "PROCESS_TIMEOUT"
    ABORT_CUT_OFF = "ABORT_CUT_OFF"
    REDO_CUT_OFF = "REDO_CUT_OFF"
    REMOVAL_CUT_OFF = "REMOVAL_CUT_OFF"
    ORDER_MISSING = "ORDER_MISSING"
    INTERRUPTION_MISSING = "INTERRUPTION_MISSING"
    MARKER_MISSING = "MARKER_MISSING"
    RECORD_DAMAGED = "RECORD_DAMAGED"
    GRAPH_CONTRADICTED = "GRAPH_CONTRADICTED"
    EPOCH_WRONG = "EPOCH_WRONG"
    TIME_IMPOSSIBLE = "TIME_IMPOSSIBLE"
    ORPHAN = "ORPHAN"


class Repair(StrEnum):
    """What is to be done about a finding. Most are steps of the normal path, run again."""

    REQUEUE = "requeue"
    FAIL = "fail"
    END_OVERDUE = "end the task for its time-out"
    ENQUEUE_DUE = "enqueue what is due"
    STAMP = "stamp"
    REQUEUE_MESSAGE = "requeue, its message is lost"
    WAIT = "wait"
    APPLY = "apply"
    ENQUEUE_READY = "enqueue what is ready"
    REGISTER_START = "register the start"
    FINISH_PROCESS = "finish the process"
    REBUILD_GRAPH = "rebuild the graph"
    REOPEN = "put back to not finished"
    RESTORE = "rebuild from the parent's decision"
    DROP_LINKS = "drop dead links"
    BREAK = "break the process"
    COUNT_OVERDUE = "count the time-out"
    BREAK_OVERDUE = "break the process for its time-out"
    FINISH_ABORT = "finish the abort"
    FINISH_REDO = "carry the new epoch out"
    FINISH_REMOVAL = "finish the removal"
    TAKE_OFF_MARK = "take the mark off"
    LIST_AGAIN = "list again"
    WRITE_MARKER = "write the marker"
    MEND = "drop what can't be read"
    REMAKE_GRAPH = "make the graph anew from the decisions"
    SET_EPOCH = "set the epoch of the process"
    SET_TIME = "set the time"
    PUT_BACK = "run again what ended with nothing"
    REPLACE_GRAPH = "make the graph again"
    RESTORE_TASK = "make the task again"
    REPORT = "report only"


_FAR_OFF = timedelta(seconds=FAR_OFF)


@lru_cache(maxsize=1000)
def _actor_by_default(name: str) -> ActorPreferences:
    """Asked for several times for each decision of a page."""
    return ActorPreferences(id=name)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule applies to a record. `record` is `P/T` for a decision, `P` for a process or graph."""

    rule: Rule
    record: str
    repair: Repair
    evidence: str
    decision: Decision | None = None
    """The decision that was judged; for RESTORE the parent's, which has all that it takes."""

    @property
    def process_id(self) -> str:
        return self.record.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a rule knows beside the process: the time and what workers tell of themselves.

    `now` is the database's. `depths` has the queues that could be asked; of the others nothing is concluded.
    `lost_workers` are known to be gone, and are not merely silent.
    """

    now: datetime
    actors: Mapping[str, ActorPreferences] = field(default_factory=dict)
    blocked: frozenset[str] = frozenset()
    """Actors of which no task is begun."""
    process_types: Mapping[str, ProcessTypePreferences] = field(default_factory=dict)
    queues: Mapping[str, QueueStatistics] = field(default_factory=dict)
    depths: Mapping[str, int] = field(default_factory=dict)
    lost_workers: frozenset[str] = frozenset()
    """Workers, or single processes of workers."""
    polled_within: timedelta = timedelta(seconds=10)
    """A queue polled longer ago than this counts as not polled."""
    message_margin: timedelta = timedelta(seconds=2)
    """Messages are pushed a moment after `queuedAt`, and not quite in its order: so much younger must one be that
    was taken, or so long before its queue was empty must a task have been queued, before a message counts as lost."""
    claim_margin: timedelta = timedelta(seconds=0.8)
    """How long a worker may have a message in hand before it claims its task. One that starts takes what has waited for
    long, and its slots are not ready yet."""
    looks_again: bool = False
    """Whether who looks does so again and again, and keeps what it saw: that a queue is empty is believed once it was
    so long ago that nothing taken from it can be in hand. Who looks once believes it at once."""
    margin: timedelta = timedelta(seconds=5)
    """How long a step may be under way before it counts as cut off."""

    as_of: datetime | None = None
    """When the records were begun to be read, if that was noted. Rules that conclude from what is absent judge by it:
    what was untouched for a while before that is in all of a snapshot's records, however long it took to read them."""

    @property
    def read_at(self) -> datetime:
        """The time that what is absent is judged by."""
        return self.now if self.as_of is None else min(self.now, self.as_of)

    def is_lost(self, holder: str | None) -> bool:
        """Whether who holds a claim is known to be gone."""
        lost = self.lost_workers
        return bool(lost) and holder is not None and (holder in lost or worker_of(holder) in lost)

    def will_look(self, deadline: datetime | None) -> bool:
        """Whether somebody looks at a record with this deadline while anybody cares."""
        # A difference of dates never overflows; a sum may.
        return deadline is not None and deadline - self.now <= _FAR_OFF

    def actor(self, name: str) -> ActorPreferences:
        """An actor's settings; the defaults where no worker has told of it yet."""
        return self.actors.get(name) or _actor_by_default(name)

    def process_type(self, name: str) -> ProcessTypePreferences:
        """A process type's settings; the defaults where no worker has told of it yet."""
        return self.process_types.get(name) or ProcessTypePreferences(id=name)

    def is_polled(self, queue: str) -> bool:
        """Whether workers look for messages of this queue: they did not long ago, or just after `now` was asked for.
        What is still to come for longer proves nothing."""
        known = self.queues.get(queue)
        polled_at = known.polled_at if known else None
        return polled_at is not None and abs(self.now - polled_at) < self.polled_within

    def empty_at(self, queue: str) -> datetime | None:
        """When a queue was last known to be empty, with nothing of what had been pushed before in anybody's hands any
        more; None: never, as far as is known."""
        known = self.queues.get(queue)
        if known is None:
            return None
        if not self.looks_again and self.is_empty(queue) and known.polled_at is not None:
            return min(known.polled_at, self.now - self.message_margin)
        # One that is still to come is of a clock that was set back since: it would prove too much.
        found = known.found_empty_at if known.found_empty_at and known.found_empty_at <= self.now else None
        seen = known.seen_empty_at if known.seen_empty_at and self._claimed_since(known.seen_empty_at) else None
        return max((moment for moment in (found, seen) if moment is not None), default=None)

    def may_be_in_hand(self, queue: str) -> bool:
        """Whether what is queued may have been taken just now, for all that is known: the next look shows it."""
        return self.looks_again and self.is_empty(queue)

    def seen_empty(self) -> list[str]:
        """Queues that are empty now, where that is to be kept: what was kept before proves what it can already."""
        kept = {name: known.seen_empty_at for name, known in self.queues.items()}
        return [
            queue
            for queue in self.depths
            if self.is_empty(queue) and ((seen := kept[queue]) is None or seen > self.now or self._claimed_since(seen))
        ]

    def _claimed_since(self, moment: datetime) -> bool:
        return self.now - moment >= self.claim_margin

    def lost_before(self, queue: str) -> datetime | None:
        """Of what was queued before this moment, and is queued still, the message is lost: a younger one was taken, the
        queue has been empty since, or Redis lost its data. None: nothing is known to be."""
        known = self.queues.get(queue)
        # A message of a time to come is of a clock that was set back since, and proves nothing.
        taken = known.taken_queued_at if known and known.taken_queued_at and known.taken_queued_at <= self.now else None
        proven = [moment for moment in (taken, self.empty_at(queue)) if moment is not None]
        earlier = [moment - self.message_margin for moment in proven if moment.year > 1]  # there are none before
        if (emptied := self.redis_lost_before(queue)) is not None:
            earlier.append(emptied)
        return max(earlier, default=None)

    def redis_lost_before(self, queue: str) -> datetime | None:
        """When Redis was found to have lost its data, last; None: never, as far as is known."""
        known = self.queues.get(queue)
        return known.lost_before if known and known.lost_before and known.lost_before <= self.now else None

    def is_empty(self, queue: str) -> bool:
        """Whether a queue has no message, and workers look for its messages."""
        return self.depths.get(queue) == 0 and self.is_polled(queue)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The records of one process, as they were read: perhaps not at one moment."""

    process_id: str
    process: Process | None
    graph: Graph | None
    decisions: Mapping[str, Decision]
    """{task id: decision}."""
    tasks: frozenset[str]
    """Ids of the tasks whose Task record is there."""
    damaged: tuple[DamagedRecord, ...] = ()
    """Its records that are there and can't be read; they are in none of the others."""
    listed: Mapping[str, float] | None = None
    """Of a broken process, {task that is listed as interrupted: how often it was restarted before}; None: not read."""
    ordered: bool = True
    """Of a process that is marked, to be removed or done again or since its marker is due: whether somebody who may has
    ordered that."""
