"""The times of a drill: promised times from the settings, and measured times from canaries' records. Pure functions.

All promised times follow from the settings, except MOMENT. These are the settings of the drill's own process, so give
it those of the workers. If the cluster has other settings, its times differ, and the drill reports that.

All times are the database's: when a process was started, and when a task was queued, claimed and finished. A task's
record holds only the last claim and the last requeue, so the claim of an attempt that gets lost must be read before the
next one. If it was not read in time, an earlier time that is certain takes its place. A reported time may then be too
long, but never too short.
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
"""Seconds for an action without delay. A few writes and a message take milliseconds, and a pool checks for dead
processes four times a second. The rest is for a busy machine. A free slot is assumed."""
MIN_NET = 30.0
"""Minimum seconds of the claim of an attempt that kills. It must not be found by its deadline."""


class Step(StrEnum):
    """A step that a drill measures."""

    START = "start"
    """From the start of a process to its first attempt."""
    STEP = "step"
    """From the end of a task to the first attempt of the next task."""
    DELAY = "delay"
    """From the due time of a delayed task to its first attempt."""
    LOST_CLAIM = "lost_claim"
    """From the deadline of a claim that is not renewed to the task's requeue."""
    KILLED_SLOT = "killed_slot"
    """From the death of a pool process to the requeue of its task."""
    KILLED_WORKER = "killed_worker"
    """From the death of a worker to the requeue of its task."""


@dataclass(frozen=True, slots=True)
class PromisedTime:
    """A promised time in seconds, and how it is composed."""

    seconds: float
    why: str


def promised(step: Step, settings: Settings, *, neighbours: bool = False) -> PromisedTime:
    """Return the promised time of a step. `neighbours`: whether other workers live on the machine of a killed
    worker."""
    heartbeat, timeout, scan = settings.heartbeat_interval, settings.heartbeat_timeout, settings.scan_interval
    if step in (Step.START, Step.STEP):
        return PromisedTime(MOMENT, "a free slot takes it at once")
    if step in (Step.DELAY, Step.LOST_CLAIM):
        return PromisedTime(scan + MOMENT, "scan_interval and a moment")
    if not settings.events:
        # Without events, workers do not react before the deadline.
        return PromisedTime(net(settings) + scan + MOMENT, "events are off: its deadline, scan_interval and a moment")
    if step is Step.KILLED_SLOT:
        return PromisedTime(MOMENT, "its worker sees it at once")
    if neighbours:
        return PromisedTime(heartbeat + MOMENT, "a worker on its machine sees it: heartbeat_interval and a moment")
    why = "no other worker is on its machine: heartbeat_timeout, heartbeat_interval, scan_interval and a moment"
    return PromisedTime(timeout + heartbeat + scan + MOMENT, why)


def net(settings: Settings) -> float:
    """Return the seconds of the claim of an attempt that kills."""
    return max(MIN_NET, 2 * (settings.heartbeat_timeout + settings.heartbeat_interval + settings.scan_interval))


def patience(promise: PromisedTime) -> float:
    """Return the seconds after which a missing time counts as failed. Much longer than promised, so that late times are
    reported as late."""
    return 2 * promise.seconds + 5.0


EARLY = 0.05
"""Seconds by which a delayed task may begin too early, because the clocks of a replica set's members differ."""

_STEP, _WAIT, _DROP = (child_task_id(START_TASK, 0, index) for index in range(3))
"""Ids of the tasks that a round schedules, in their order."""


class ProbeOutcome(StrEnum):
    """The outcome of a probe."""

    OK = "ok"
    LATE = "late"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Probe:
    """A measured time of one canary in seconds. None if it did not come about."""

    step: Step
    process: str
    task: str
    seconds: float | None

    def outcome(self, promise: PromisedTime) -> ProbeOutcome:
        """Return the outcome, compared with the promised time."""
        if self.seconds is None or (self.step is Step.DELAY and self.seconds < -EARLY):
            return ProbeOutcome.FAILED
        return ProbeOutcome.OK if self.seconds <= promise.seconds else ProbeOutcome.LATE


@dataclass(slots=True)
class Sighting:
    """What was seen of one task."""

    attempts: int = 0
    first_claim: datetime | None = None
    first_deadline: datetime | None = None
    """When the claim of the first attempt expires, as it was last seen."""
    first_holder: str | None = None
    last_claim: datetime | None = None
    requeued: datetime | None = None
    """When the task was queued after its first attempt."""
    finished: datetime | None = None

    def note(self, seen: Decision) -> None:
        """Record the task's decision as it is now."""
        self.attempts, self.last_claim = seen.attempts, seen.claimed_at or self.last_claim
        if seen.attempts == 1 and seen.state in (DecisionState.WORKING, DecisionState.FINISHED):
            self.first_claim = seen.claimed_at
        if seen.attempts == 1 and seen.state is DecisionState.WORKING:
            self.first_deadline, self.first_holder = seen.recovery_time, seen.worker
        is_requeued = seen.attempts > 1 or (seen.attempts == 1 and seen.state is DecisionState.QUEUED)
        if is_requeued and self.requeued is None:
            self.requeued = seen.queued_at
        if seen.outcome is not None:
            self.finished = seen.outcome.finished_at

    @property
    def claimed(self) -> datetime | None:
        """The first claim if it was seen, otherwise the last claim."""
        return self.first_claim or self.last_claim


@dataclass(slots=True)
class Canary:
    """A canary: its order, and what was seen of it."""

    id: str
    kind: CanaryKind
    victim: Victim | None
    tasks: dict[str, Sighting]
    net: float = 0.0
    """For a canary that kills: the seconds of its claim, set just before HOLD began."""
    started: datetime | None = None
    ended: bool = False
    error: str | None = None
    values: Mapping[str, Mapping[str, str]] | None = None
    """{task: value} when the canary has ended."""

    def note(self, task: str, seen: Decision) -> bool:
        """Record a task's decision as it is now. Return whether it has changed since it was last seen."""
        previous = self.tasks.get(task)
        previous_state = previous and (previous.attempts, previous.requeued, previous.finished)
        sighting = self.tasks.setdefault(task, Sighting())
        sighting.note(seen)
        return previous_state != (sighting.attempts, sighting.requeued, sighting.finished)

    @property
    def waits(self) -> bool:
        """Whether no attempt has begun."""
        return not self.ended and self._seen(START_TASK).attempts == 0

    @property
    def kills_worker(self) -> bool:
        """Whether the canary was ordered to kill its worker."""
        return self.victim is Victim.WORKER

    @property
    def first_worker(self) -> str | None:
        """The id of the worker that had the first attempt, if that was seen."""
        holder = self._seen(START_TASK).first_holder
        return worker_of(holder) if holder else None

    def probes(self, worker_timeout: float) -> Iterator[Probe]:
        """Yield the measured times of everything that has begun. `worker_timeout`: the canary actor's, in seconds."""
        start = self._seen(START_TASK)
        yield Probe(Step.START, self.id, START_TASK, _seconds_between(self.started, start.claimed))
        if self.kind is CanaryKind.KILL and start.claimed is not None:
            death = self._death(start, worker_timeout)
            step = Step.KILLED_WORKER if self.kills_worker else Step.KILLED_SLOT
            yield Probe(step, self.id, START_TASK, _seconds_between(death, start.requeued))
        if self.kind is CanaryKind.ROUND and start.finished is not None:
            yield from self._of_round(start.finished, worker_timeout)
        elif self.kind is CanaryKind.ROUND and start.claimed is not None:
            yield Probe(Step.STEP, self.id, _STEP, None)  # no step followed

    def _death(self, start: Sighting, worker_timeout: float) -> datetime | None:
        """Return when the attempt killed, or a slightly earlier time."""
        if start.first_claim is None:
            return self.started
        begun, deadline = start.first_claim, start.first_deadline
        # its claim was already extended
        if deadline is not None and deadline - begun > timedelta(seconds=worker_timeout):
            begun = max(begun, deadline - timedelta(seconds=self.net))
        return begun + timedelta(seconds=HOLD)

    def _of_round(self, scheduled: datetime, worker_timeout: float) -> Iterator[Probe]:
        task, previous_end = _STEP, scheduled
        for _ in range(STEPS):
            seen = self._seen(task)
            yield Probe(Step.STEP, self.id, task, _seconds_between(previous_end, seen.claimed))
            if seen.finished is None:
                break
            task, previous_end = child_task_id(task, 0, 0), seen.finished
        due = scheduled + timedelta(seconds=DELAY)
        yield Probe(Step.DELAY, self.id, _WAIT, _seconds_between(due, self._seen(_WAIT).claimed))
        dropped = self._seen(_DROP)
        if dropped.first_claim is not None or dropped.attempts == 0:
            yield Probe(Step.STEP, self.id, _DROP, _seconds_between(scheduled, dropped.first_claim))
        if dropped.attempts:
            lost = (dropped.first_claim or scheduled) + timedelta(seconds=worker_timeout)
            deadline = dropped.first_deadline or lost
            yield Probe(Step.LOST_CLAIM, self.id, _DROP, _seconds_between(deadline, dropped.requeued))

    def _seen(self, task: str) -> Sighting:
        return self.tasks.get(task) or Sighting()


def _seconds_between(earlier: datetime | None, later: datetime | None) -> float | None:
    return None if earlier is None or later is None else (later - earlier).total_seconds()
