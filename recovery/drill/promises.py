"""What is promised, in seconds, and where each time comes from. All follow from the settings but MOMENT.

These are the settings of whoever runs the drill: give it those of the workers. Where a cluster has others, its times
are others, and the drill says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
class Promise:
    """So many seconds, and what they are made of."""

    seconds: float
    why: str


def promised(step: Step, settings: Settings, *, neighbours: bool = False) -> Promise:
    """The time of a step. `neighbours`: of a killed worker, whether others live on its machine."""
    beat, silence, scan = settings.heartbeat_interval, settings.heartbeat_timeout, settings.scan_interval
    if step in (Step.START, Step.STEP):
        return Promise(MOMENT, "a free slot takes it at once")
    if step in (Step.DELAY, Step.LOST_CLAIM):
        return Promise(scan + MOMENT, "scan_interval and a moment")
    if not settings.events:
        # Nobody acts on what could be known at once.
        return Promise(net(settings) + scan + MOMENT, "events are off: its deadline, scan_interval and a moment")
    if step is Step.KILLED_SLOT:
        return Promise(MOMENT, "its worker sees it at once")
    if neighbours:
        return Promise(beat + MOMENT, "a worker on its machine sees it: heartbeat_interval and a moment")
    why = "nobody else is on its machine: heartbeat_timeout, heartbeat_interval, scan_interval and a moment"
    return Promise(silence + beat + scan + MOMENT, why)


def net(settings: Settings) -> float:
    """Seconds that an attempt which kills has for its claim."""
    return max(MIN_NET, 2 * (settings.heartbeat_timeout + settings.heartbeat_interval + settings.scan_interval))


def patience(promise: Promise) -> float:
    """Seconds after which what has not come counts as failed. Far enough beyond what is promised that what is only late
    is told as such."""
    return 2 * promise.seconds + 5.0
