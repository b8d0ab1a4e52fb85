"""The times of a drill: what is promised, in seconds, and what follows from canaries' records while they ran. Pure.

All promised times follow from the settings, except MOMENT. These are the settings of whoever runs the drill: give it
those of the workers. If a cluster has others, its times are others, and the drill says so.

All moments are the database's: when a process was started, a task queued, claimed, finished. A task's record holds the
last claim and the last requeue only, so that of an attempt that is lost is noted while it stands there. Where it was
not seen, an earlier moment takes its place that is in the records for sure: the time that is told is then too long, and
never too short.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from recovery.drill.canary_actor import DELAY, HOLD, STEPS, CanaryKind, Victim
from recovery.records import Decision, DecisionState
from recovery.records.ids import START_TASK, child_task_id, worker_of
from recovery.settings import Settings

MOMENT = 1.0
"""Seconds. What is known at once is acted on at once: a few writes and a message take milliseconds, and a pool looks
for dead processes four times a second. The rest is for a machine that is busy. A free slot is taken for granted."""
MIN_NET = 30.0
"""Seconds, at least, that an attempt which kills has for its claim: it is not to be found by its deadline."""


class Step(StrEnum):
    """What is measured."""

    START = "start"
    """From the start of a process to its first attempt."""
    STEP = "step"
    """From the end of a task to the first attempt of the next."""
    DELAY = "delay"
    """From the time that a task was delayed until, to its first attempt."""
    LOST_CLAIM = "lost_claim"
    """From the deadline of a claim that nobody renews, to the task's requeue."""
    KILLED_SLOT = "killed_slot"
    """From the death of a pool process to the requeue of what it ran."""
    KILLED_WORKER = "killed_worker"
    """From the death of a worker to the requeue of what it ran."""


@dataclass(frozen=True, slots=True)
class PromisedTime:
    """So many seconds, and what they are made of."""

    seconds: float
    why: str


def promised(step: Step, settings: Settings, *, neighbours: bool = False) -> PromisedTime:
    """The time of a step. `neighbours`: of a killed worker, whether others live on its machine."""
    beat, silence, scan = settings.heartbeat_interval, settings.heartbeat_timeout, settings.scan_interval
    if step in (Step.START, Step.STEP):
        return PromisedTime(MOMENT, "a free slot takes it at once")
    if step in (Step.DELAY, Step.LOST_CLAIM):
        return PromisedTime(scan + MOMENT, "scan_interval and a moment")
    if not settings.events:
        # Nobody acts on what could be known at once.
        return PromisedTime(net(settings) + scan + MOMENT, "events are off: its deadline, scan_interval and a moment")
    if step is Step.KILLED_SLOT:
        return PromisedTime(MOMENT, "its worker sees it at once")
    if neighbours:
        return PromisedTime(beat + MOMENT, "a worker on its machine sees it: heartbeat_interval and a moment")
    why = "nobody else is on its machine: heartbeat_timeout, heartbeat_interval, scan_interval and a moment"
    return PromisedTime(silence + beat + scan + MOMENT, why)


def net(settings: Settings) -> float:
    """Seconds that an attempt which kills has for its claim."""
    return max(MIN_NET, 2 * (settings.heartbeat_timeout + settings.heartbeat_interval + settings.scan_interval))


def patience(promise: PromisedTime) -> float:
    """Seconds after which what has not come counts as failed. Far enough beyond what is promised that what is only late
    is told as such."""
    return 2 * promise.seconds + 5.0


EARLY = 0.05
"""Seconds before its time that a delayed task may begin: what the clocks of a replica set's members differ by, and
none of it."""

_STEP, _WAIT, _DROP = (child_task_id(START_TASK, 0, place) for place in range(3))
"""Tasks that a round schedules, in their order."""


class ProbeOutcome(StrEnum):
    """What came of a probe."""

    OK = "ok"
    LATE = "late"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Probe:
    """One time that was measured: of which canary, and its seconds; None where it did not come about."""

    step: Step
    process: str
    task: str
    seconds: float | None

    def outcome(self, promise: PromisedTime) -> ProbeOutcome:
        """What it is against what was promised."""
        if self.seconds is None or (self.step is Step.DELAY and self.seconds < -EARLY):
            return ProbeOutcome.FAILED
        return ProbeOutcome.OK if self.seconds <= promise.seconds else ProbeOutcome.LATE


@dataclass(slots=True)
class Sighting:
    """What was seen of one task."""

    attempts: int = 0
    first_claim: datetime | None = None
    first_deadline: datetime | None = None
    """When the first attempt's claim is over, as it stood there last."""
    first_holder: str | None = None
    last_claim: datetime | None = None
    requeued: datetime | None = None
    """When it was queued after its first attempt."""
    finished: datetime | None = None

    def note(self, seen: Decision) -> None:
        """It stands like this now."""
        self.attempts, self.last_claim = seen.attempts, seen.claimed_at or self.last_claim
        if seen.attempts == 1 and seen.state in (DecisionState.WORKING, DecisionState.FINISHED):
            self.first_claim = seen.claimed_at
        if seen.attempts == 1 and seen.state is DecisionState.WORKING:
            self.first_deadline, self.first_holder = seen.recovery_time, seen.worker
        again = seen.attempts > 1 or (seen.attempts == 1 and seen.state is DecisionState.QUEUED)
        if again and self.requeued is None:
            self.requeued = seen.queued_at
        if seen.outcome is not None:
            self.finished = seen.outcome.finished_at

    @property
    def claimed(self) -> datetime | None:
        """When it was first claimed, or at the latest."""
        return self.first_claim or self.last_claim


@dataclass(slots=True)
class Canary:
    """One canary: what it was told, and what was seen of it."""

    id: str
    kind: CanaryKind
    victim: Victim | None
    tasks: dict[str, Sighting]
    net: float = 0.0
    """Of one that kills: the seconds that its claim was given just before HOLD began."""
    started: datetime | None = None
    ended: bool = False
    error: str | None = None
    values: Mapping[str, Mapping[str, str]] | None = None
    """{task: what it returned}, once it has ended."""

    def note(self, task: str, seen: Decision) -> bool:
        """A task of it stands like this now; whether it was seen otherwise before."""
        before = self.tasks.get(task)
        known = before and (before.attempts, before.requeued, before.finished)
        now = self.tasks.setdefault(task, Sighting())
        now.note(seen)
        return known != (now.attempts, now.requeued, now.finished)

    @property
    def waits(self) -> bool:
        """Whether nobody has begun it."""
        return not self.ended and self._seen(START_TASK).attempts == 0

    @property
    def kills_worker(self) -> bool:
        """Whether it was to kill its worker."""
        return self.victim is Victim.WORKER

    @property
    def first_worker(self) -> str | None:
        """The id of the worker that had its first attempt, if that was seen."""
        holder = self._seen(START_TASK).first_holder
        return worker_of(holder) if holder else None

    def probes(self, worker_timeout: float) -> Iterator[Probe]:
        """The times that follow, of what has begun. `worker_timeout` is that of canaries."""
        start = self._seen(START_TASK)
        yield Probe(Step.START, self.id, START_TASK, _between(self.started, start.claimed))
        if self.kind is CanaryKind.KILL and start.claimed is not None:
            death = self._death(start, worker_timeout)
            step = Step.KILLED_WORKER if self.kills_worker else Step.KILLED_SLOT
            yield Probe(step, self.id, START_TASK, _between(death, start.requeued))
        if self.kind is CanaryKind.ROUND and start.finished is not None:
            yield from self._of_round(start.finished, worker_timeout)
        elif self.kind is CanaryKind.ROUND and start.claimed is not None:
            yield Probe(Step.STEP, self.id, _STEP, None)  # none followed

    def _death(self, start: Sighting, worker_timeout: float) -> datetime | None:
        """When the attempt that kills did so, or a little before."""
        if start.first_claim is None:
            return self.started
        begun, deadline = start.first_claim, start.first_deadline
        if deadline is not None and deadline - begun > timedelta(seconds=worker_timeout):  # it had its net by then
            begun = max(begun, deadline - timedelta(seconds=self.net))
        return begun + timedelta(seconds=HOLD)

    def _of_round(self, scheduled: datetime, worker_timeout: float) -> Iterator[Probe]:
        task, before = _STEP, scheduled
        for _ in range(STEPS):
            seen = self._seen(task)
            yield Probe(Step.STEP, self.id, task, _between(before, seen.claimed))
            if seen.finished is None:
                break
            task, before = child_task_id(task, 0, 0), seen.finished
        due = scheduled + timedelta(seconds=DELAY)
        yield Probe(Step.DELAY, self.id, _WAIT, _between(due, self._seen(_WAIT).claimed))
        dropped = self._seen(_DROP)
        if dropped.first_claim is not None or dropped.attempts == 0:
            yield Probe(Step.STEP, self.id, _DROP, _between(scheduled, dropped.first_claim))
        if dropped.attempts:
            lost = (dropped.first_claim or scheduled) + timedelta(seconds=worker_timeout)
            deadline = dropped.first_deadline or lost
            yield Probe(Step.LOST_CLAIM, self.id, _DROP, _between(deadline, dropped.requeued))

    def _seen(self, task: str) -> Sighting:
        return self.tasks.get(task) or Sighting()


def _between(earlier: datetime | None, later: datetime | None) -> float | None:
    return None if earlier is None or later is None else (later - earlier).total_seconds()
