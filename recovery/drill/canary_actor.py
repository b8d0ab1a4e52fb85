"""The actor `recovery.canary`, as workers serve it: one actor and process type, whose argument says what each of its
tasks does.

    round   the start task of a canary; it schedules a `step`, a `wait` and a `drop`, and none waits for another
    step    schedules another step, `left` times
    wait    nothing: it was scheduled with a delay
    drop    its first attempt drops its claim and tells nobody, so that it is found by its deadline
    call    the start task of a canary that only takes a slot for a moment: which worker was it?
    kill    the start task of a canary whose first attempt kills its pool process, or its worker

All end by themselves within seconds. One that can't, since nobody looks after it, is broken at its `process_timeout`.

An attempt kills only if all of this is so: its worker has the right to (`RECOVERY_DRILL_KILL`); it is the first
attempt of its task; the record of its process says so, was made by a drill, and is no older than ORDER_TIMEOUT; and of
a worker, that another one lives which serves canaries. It looks when it begins and once more just before. Else it
declines, and its value tells why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Protocol

from recovery.engine import Actor, Recovery
from recovery.engine.actors.context import Attempt, current
from recovery.errors import ClaimLost
from recovery.records import ActorPreferences, Decision, ProcessState, ProcessTypePreferences
from recovery.records.ids import CANARY, worker_of
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
DECLINED, WORKER = "declined", "worker"
"""Keys of a canary's value: why it did not kill, and the id of the worker that ran its task to the end."""


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


class Killer(Protocol):
    """What a worker lets its canaries do. Without one they kill nothing."""

    def declines(self, victim: Victim) -> str | None:
        """Why it can't kill that; None: it can."""

    def kill(self, victim: Victim) -> None:
        """Kill it. Does not return, unless what was to be killed is gone already."""


witnesses: list[Callable[[Decision, Order], None]] = []
"""Told of each attempt as it begins. For whoever holds the drill's figures against something else."""


def canary_actor(app: Recovery, killer: Killer | None) -> Actor[..., Any]:
    """The actor, for the workers of an application. `killer`: how its attempts may kill, where they may."""

    def canary(order: Order) -> dict[str, Any]:
        attempt = current(CANARY)
        for tell in witnesses:
            tell(attempt.decision, order)
        value = _DOES[CanaryKind(order["kind"])](_CanaryTask(app, actor, killer, attempt, order))
        return {WORKER: worker_of(attempt.decision.worker or ""), **(value or {})}

    canary.__doc__ = "A task of `recovery drill`."
    actor = Actor(canary, actor_preferences(), type_preferences(app.settings))
    return actor


class _CanaryTask:
    """What one attempt knows."""

    def __init__(
        self, app: Recovery, actor: Actor[..., Any], killer: Killer | None, attempt: Attempt, told: Order
    ) -> None:
        self._app, self._actor, self._killer, self._attempt, self._told = app, actor, killer, attempt, told

    def round(self) -> None:
        self._actor.schedule(order(CanaryKind.STEP, left=STEPS - 1))
        self._actor.options(delay=DELAY).schedule(order(CanaryKind.WAIT))
        self._actor.schedule(order(CanaryKind.DROP))

    def step(self) -> None:
        if left := int(self._told["left"]):
            self._actor.schedule(order(CanaryKind.STEP, left=left - 1))

    def wait(self) -> None:
        """It has waited."""

    def drop(self) -> None:
        if self._is_first:
            self._attempt.lost.set()
            raise ClaimLost("a canary drops its claim, as it was told")

    def call(self) -> None:
        threading.Event().wait(CALL)

    def kill(self) -> dict[str, str] | None:
        if not self._is_first:
            return None
        victim = Victim(self._told["victim"])
        if why := self._declines(victim):
            return {DECLINED: why}
        assert self._killer is not None
        decision, pass_key = self._attempt.decision, self._attempt.decision.pass_key or ""
        # Who is killed is to be found by that, and not by the short time that a canary has.
        if not self._app.resources.store.decisions.extend(decision.id, pass_key, float(self._told["net"])):
            self._attempt.lost.set()
            raise ClaimLost("a canary was to kill, and its claim is another's")
        threading.Event().wait(HOLD)
        if why := self._declines(victim):  # meanwhile the drill was stopped, or another worker is gone
            return {DECLINED: why}
        self._killer.kill(victim)
        return None

    @property
    def _is_first(self) -> bool:
        return self._attempt.decision.attempts == 1 and not self._attempt.decision.restarts

    def _declines(self, victim: Victim) -> str | None:
        """Why this attempt does not kill."""
        if self._killer is None:
            return "its worker does not allow it: RECOVERY_DRILL_KILL is off"
        store = self._app.resources.store
        process = store.processes.get_committed_brief(self._attempt.decision.process_id)
        if process is None or process.type != CANARY or process.state is not ProcessState.RUNNING:
            return "no running canary says so"
        if process.reopened or process.epoch or not any(one.startswith(f"{LABEL}=") for one in process.labels):
            return "it is of no drill"
        if process.started_at is None or (store.now() - process.started_at).total_seconds() > ORDER_TIMEOUT:
            return f"it was told so over {ORDER_TIMEOUT:g} s ago"
        own = worker_of(self._attempt.decision.worker or "")
        alive = store.overview.workers_alive()
        if victim is Victim.WORKER and not any(CANARY in one.queues for one in alive if one.id != own):
            return f"no other worker that serves {CANARY} lives"
        return self._killer.declines(victim)


_DOES: dict[CanaryKind, Callable[[_CanaryTask], dict[str, str] | None]] = {
    CanaryKind.ROUND: _CanaryTask.round,
    CanaryKind.STEP: _CanaryTask.step,
    CanaryKind.WAIT: _CanaryTask.wait,
    CanaryKind.DROP: _CanaryTask.drop,
    CanaryKind.CALL: _CanaryTask.call,
    CanaryKind.KILL: _CanaryTask.kill,
}
