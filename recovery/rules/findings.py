"""The input and output of rules: a snapshot of a process, the state of the cluster around it, and findings."""

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
    """The names of the rules in the failure map (docs/failure-map.md)."""

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
    """The repair for a finding. Most repairs run a step of the normal path again."""

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
    """Return the default settings of an actor. Cached, because scanners need them several times per decision."""
    return ActorPreferences(id=name)


@dataclass(frozen=True, slots=True)
class Finding:
    """A match of a rule on a record. `record` is `P/T` for a decision, `P` for a process or graph."""

    rule: Rule
    record: str
    repair: Repair
    evidence: str
    decision: Decision | None = None
    """The decision that was judged. For RESTORE it is the parent's decision, which has the data of the lost records."""

    @property
    def process_id(self) -> str:
        return self.record.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The context of a rule besides the records of the process: the time, settings, and the state of queues and
    workers.

    `now` is the database's time. `depths` has only queues whose length could be read. `lost_workers` are known to be
    gone, not merely silent.
    """

    now: datetime
    actors: Mapping[str, ActorPreferences] = field(default_factory=dict)
    blocked: frozenset[str] = frozenset()
    """Actors that an operator has blocked, so that none of their tasks begins."""
    process_types: Mapping[str, ProcessTypePreferences] = field(default_factory=dict)
    queues: Mapping[str, QueueStatistics] = field(default_factory=dict)
    depths: Mapping[str, int] = field(default_factory=dict)
    lost_workers: frozenset[str] = frozenset()
    """Ids of workers, or of single processes of workers, that are known to be gone."""
    polled_within: timedelta = timedelta(seconds=10)
    """A queue that was polled longer ago than this counts as not polled."""
    message_margin: timedelta = timedelta(seconds=2)
    """Tolerance for comparing the times of messages, which are pushed a moment after `queuedAt` and not exactly in that
    order. A message counts as lost only if a message that is younger by at least this margin was taken, or if its queue
    was empty at least this long after the task was queued."""
    claim_margin: timedelta = timedelta(seconds=0.8)
    """How long a worker may hold a message before it claims the task. A starting worker receives messages that have
    waited for long while its slots are not ready yet."""
    looks_again: bool = False
    """Whether the caller checks repeatedly and stores when queues were empty. It then relies on an empty queue only
    after `claim_margin`, when all messages that were taken from it are claimed. A caller that checks once relies on an
    empty queue at once."""
    margin: timedelta = timedelta(seconds=5)
    """How long a step may take before it counts as cut off."""

    as_of: datetime | None = None
    """When reading the records began, if known. Rules that conclude from absent records use this time. A graph that was
    untouched for a while before it has all of its records in the snapshot, however long reading took."""

    @property
    def read_at(self) -> datetime:
        """Return the time for rules that conclude from absent records."""
        return self.now if self.as_of is None else min(self.now, self.as_of)

    def is_lost(self, holder: str | None) -> bool:
        """Return whether the holder of a claim is known to be gone."""
        lost = self.lost_workers
        return bool(lost) and holder is not None and (holder in lost or worker_of(holder) in lost)

    def will_look(self, deadline: datetime | None) -> bool:
        """Return whether there is a deadline that is at most about ten years ahead, so that a scanner will look at the
        record."""
        # The difference of two dates cannot overflow; the sum of a date and a duration can.
        return deadline is not None and deadline - self.now <= _FAR_OFF

    def actor(self, name: str) -> ActorPreferences:
        """Return an actor's settings; the defaults if no worker has stored its settings yet."""
        return self.actors.get(name) or _actor_by_default(name)

    def process_type(self, name: str) -> ProcessTypePreferences:
        """Return a process type's settings; the defaults if no worker has stored its settings yet."""
        return self.process_types.get(name) or ProcessTypePreferences(id=name)

    def is_polled(self, queue: str) -> bool:
        """Return whether workers poll this queue: the last poll is at most `polled_within` before or after `now`. A
        poll that is further in the future proves nothing."""
        known = self.queues.get(queue)
        polled_at = known.polled_at if known else None
        return polled_at is not None and abs(self.now - polled_at) < self.polled_within

    def empty_at(self, queue: str) -> datetime | None:
        """Return the last known time at which a queue was empty and all messages taken before it are claimed or lost;
        None if unknown."""
        known = self.queues.get(queue)
        if known is None:
            return None
        if not self.looks_again and self.is_empty(queue) and known.polled_at is not None:
            return min(known.polled_at, self.now - self.message_margin)
        # A time in the future was written before a clock was set back, and would prove too much.
        found_at = known.found_empty_at if known.found_empty_at and known.found_empty_at <= self.now else None
        seen_at = known.seen_empty_at if known.seen_empty_at and self._claimed_since(known.seen_empty_at) else None
        return max((moment for moment in (found_at, seen_at) if moment is not None), default=None)

    def may_be_in_hand(self, queue: str) -> bool:
        """Return whether a worker may have just received the messages of this queue and not have claimed the tasks yet.
        The next check will show it."""
        return self.looks_again and self.is_empty(queue)

    def seen_empty(self) -> list[str]:
        """Return the queues that are empty now and whose stored `seen_empty_at` should be updated. A stored time that
        is younger than `claim_margin` is kept, because it will prove as much sooner."""
        stored = {name: known.seen_empty_at for name, known in self.queues.items()}
        return [
            queue
            for queue in self.depths
            if self.is_empty(queue)
            and ((seen_at := stored[queue]) is None or seen_at > self.now or self._claimed_since(seen_at))
        ]

    def _claimed_since(self, moment: datetime) -> bool:
        """Return whether all messages that were taken before this moment are claimed or lost by now."""
        return self.now - moment >= self.claim_margin

    def lost_before(self, queue: str) -> datetime | None:
        """Return the time before which all messages of still queued tasks are lost; None if no loss is known.

        A message is lost if a younger message was taken, if the queue has been empty since, or if Redis lost its data.
        """
        known = self.queues.get(queue)
        # A time in the future was written before a clock was set back, and proves nothing.
        taken = known.taken_queued_at if known and known.taken_queued_at and known.taken_queued_at <= self.now else None
        proven = [moment for moment in (taken, self.empty_at(queue)) if moment is not None]
        earlier = [moment - self.message_margin for moment in proven if moment.year > 1]  # a subtraction may underflow
        if (emptied := self.redis_lost_before(queue)) is not None:
            earlier.append(emptied)
        return max(earlier, default=None)

    def redis_lost_before(self, queue: str) -> datetime | None:
        """Return when Redis was last found to have lost its data; None if no loss is known."""
        known = self.queues.get(queue)
        return known.lost_before if known and known.lost_before and known.lost_before <= self.now else None

    def is_empty(self, queue: str) -> bool:
        """Return whether a queue has no message and workers poll it."""
        return self.depths.get(queue) == 0 and self.is_polled(queue)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The records of one process, which may have been read at different moments."""

    process_id: str
    process: Process | None
    graph: Graph | None
    decisions: Mapping[str, Decision]
    """{task id: decision}."""
    tasks: frozenset[str]
    """Ids of the tasks whose Task record exists."""
    damaged: tuple[DamagedRecord, ...] = ()
    """The records that exist but cannot be read. They are missing in the other fields."""
    listed: Mapping[str, float] | None = None
    """For a broken process: {task that an interruption lists: its `restarts` in the interruption}; None: not read."""
    ordered: bool = True
    """For a process with a mark (`removing`, `redo` or `markerDue`): whether the order that authorizes it exists."""
