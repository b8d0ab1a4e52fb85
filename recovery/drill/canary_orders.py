"""What canaries are told: one actor and process type, whose argument says what each of its tasks does.

    round   the start task of a canary; it schedules a `step`, a `wait` and a `drop`, and none waits for another
    step    schedules another step, `left` times
    wait    nothing: it was scheduled with a delay
    drop    its first attempt drops its claim and tells nobody, so that it is found by its deadline
    call    the start task of a canary that only takes a slot for a moment: which worker was it?
    kill    the start task of a canary whose first attempt kills its pool process, or its worker

All end by themselves within seconds. One that can't, since nobody looks after it, is broken at its `process_timeout`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from recovery.records import ActorPreferences, ProcessTypePreferences
from recovery.records.ids import CANARY as CANARY
from recovery.settings import Settings

LABEL = "drill"
"""By which a drill's canaries are found: `label.drill:ID`."""

DELAY = 1.0
"""Seconds that a canary is delayed."""
HOLD = 1.0
"""Seconds from the claim of an attempt that kills to the kill: in that time its claim is seen in its record, which the
next attempt overwrites."""
CALL = 0.1
"""Seconds that a canary which is called takes a slot, so that the next one comes to another worker."""
ORDER_TIMEOUT = 30.0
"""Seconds after which no attempt kills any more: who ordered it is gone, perhaps, and does not expect it."""
STEPS = 2
WORKER_TIMEOUT = 2.0
"""Of canaries. Their attempts take milliseconds; it is what one that drops its claim costs a drill."""
PROCESS_TIMEOUT = 120.0
"""Seconds, and some times what recovery may take: by then a canary that has not ended is broken."""


class CanaryKind(StrEnum):
    """What a task of a canary does."""

    ROUND = "round"
    STEP = "step"
    WAIT = "wait"
    DROP = "drop"
    CALL = "call"
    KILL = "kill"


class Victim(StrEnum):
    """What an attempt kills."""

    SLOT = "slot"
    """Its pool process."""
    WORKER = "worker"
    """Its worker."""


Order = Mapping[str, Any]


def order(kind: CanaryKind, **told: Any) -> dict[str, Any]:
    """What one task is told, as JSON."""
    return {"kind": kind.value, **told}


def actor_preferences() -> ActorPreferences:
    """Settings of the actor. An error of its own breaks a canary at once: it is a bug, and no weather."""
    return ActorPreferences(id=CANARY, worker_timeout=WORKER_TIMEOUT, retry=False)


def type_preferences(settings: Settings) -> ProcessTypePreferences:
    """Settings of the process type."""
    slowest = settings.heartbeat_timeout + settings.heartbeat_interval + settings.scan_interval
    return ProcessTypePreferences(
        id=CANARY,
        idle_timeout=settings.idle_timeout,
        process_timeout=PROCESS_TIMEOUT + 4 * slowest,
        break_after_process_timeout=True,
    )
