"""The actor and process type `recovery.canary`, which workers serve. Its argument says what each of its tasks does.

    round   the start task of a canary; schedules a `step`, a `wait` and a `drop`, which are independent
    step    schedules another step, `left` times
    wait    nothing; it was scheduled with a delay
    drop    its first attempt silently drops its claim, so that the claim is found by its deadline
    call    the start task of a canary that only takes a slot for a moment; its value names the worker
    kill    the start task of a canary whose first attempt kills its pool process or its worker

All canaries end by themselves within seconds. If one can't, because no worker recovers it, it breaks at its
`process_timeout`.

An attempt kills only under all of these conditions, which it checks when it begins and again just before it kills.
Otherwise it declines, and its value says why:

- Its worker allows it (`RECOVERY_DRILL_KILL`).
- It is the first attempt of its task.
- The record of its process orders it, was made by a drill, and is not older than ORDER_TIMEOUT.
- If it kills a worker: another live worker serves canaries.
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
"""Label of a drill's canaries, by which they are found: `label.drill:ID`."""

DELAY = 1.0
"""Seconds by which the task `wait` is delayed."""
HOLD = 1.0
"""Seconds from the claim of an attempt that kills to the kill. In this time the drill reads the claim from the record,
which the next attempt overwrites."""
CALL = 0.1
"""Seconds for which a `call` takes a slot, so that the next call goes to another worker."""
ORDER_TIMEOUT = 30.0
"""Maximum seconds from the start of a canary to its kill. Later nobody may expect the kill any more."""
STEPS = 2
WORKER_TIMEOUT = 2.0
"""Seconds. Attempts of canaries take milliseconds. After an attempt that drops its claim the drill waits this long."""
PROCESS_TIMEOUT = 120.0
"""Seconds added to a multiple of the time that recovery may take. A canary that has not ended by then breaks."""
DECLINED, WORKER = "declined", "worker"
"""Keys of a canary's value: why it did not kill, and the id of the worker that finished its task."""


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
    """The attempt's pool process."""
    WORKER = "worker"
    """The attempt's worker."""


Order = Mapping[str, Any]


def order(kind: CanaryKind, **told: Any) -> dict[str, Any]:
    """Return the argument of a task, as JSON values."""
    return {"kind": kind.value, **told}


def actor_preferences() -> ActorPreferences:
    """Return the actor's settings. It has no retries, because an error in a canary is a bug."""
    return ActorPreferences(id=CANARY, worker_timeout=WORKER_TIMEOUT, retry=False)


def type_preferences(settings: Settings) -> ProcessTypePreferences:
    """Return the settings of the process type."""
    detection_time = settings.heartbeat_timeout + settings.heartbeat_interval + settings.scan_interval
    return ProcessTypePreferences(
        id=CANARY,
        idle_timeout=settings.idle_timeout,
        process_timeout=PROCESS_TIMEOUT + 4 * detection_time,
        break_after_process_timeout=True,
    )


class Killer(Protocol):
    """A worker's interface by which its canaries kill. Without a killer they kill nothing."""

    def declines(self, victim: Victim) -> str | None:
        """Return why this victim can't be killed, or None if it can."""

    def kill(self, victim: Victim) -> None:
        """Kill the victim. Returns only if it is already gone."""


witnesses: list[Callable[[Decision, Order], None]] = []
"""Called with each attempt as it begins. The demo compares the drill's figures with its own."""


def canary_actor(app: Recovery, killer: Killer | None) -> Actor[..., Any]:
    """Return the actor for the workers of an application. `killer` does the killing, if the workers allow it."""

    def canary(order: Order) -> dict[str, Any]:
        attempt = current(CANARY)
        for witness in witnesses:
            witness(attempt.decision, order)
        value = _DOES[CanaryKind(order["kind"])](_CanaryTask(app, actor, killer, attempt, order))
        return {WORKER: worker_of(attempt.decision.worker or ""), **(value or {})}

    canary.__doc__ = "A task of `recovery drill`."
    actor = Actor(canary, actor_preferences(), type_preferences(app.settings))
    return actor


class _CanaryTask:
    """The task of one attempt."""

    def __init__(
        self, app: Recovery, actor: Actor[..., Any], killer: Killer | None, attempt: Attempt, order: Order
    ) -> None:
        self._app, self._actor, self._killer, self._attempt, self._order = app, actor, killer, attempt, order

    def round(self) -> None:
        self._actor.schedule(order(CanaryKind.STEP, left=STEPS - 1))
        self._actor.options(delay=DELAY).schedule(order(CanaryKind.WAIT))
        self._actor.schedule(order(CanaryKind.DROP))

    def step(self) -> None:
        if remaining := int(self._order["left"]):
            self._actor.schedule(order(CanaryKind.STEP, left=remaining - 1))

    def wait(self) -> None:
        """Do nothing. The task's delay was the point."""

    def drop(self) -> None:
        if self._is_first:
            self._attempt.lost.set()
            raise ClaimLost("a canary drops its claim, as ordered")

    def call(self) -> None:
        threading.Event().wait(CALL)

    def kill(self) -> dict[str, str] | None:
        if not self._is_first:
            return None
        victim = Victim(self._order["victim"])
        if why := self._declines(victim):
            return {DECLINED: why}
        assert self._killer is not None
        decision, pass_key = self._attempt.decision, self._attempt.decision.pass_key or ""
        # With a longer claim, the dead attempt is found by its worker's death, and not by its deadline.
        if not self._app.resources.store.decisions.extend(decision.id, pass_key, float(self._order["net"])):
            self._attempt.lost.set()
            raise ClaimLost("a canary was to kill, but another attempt has its claim")
        threading.Event().wait(HOLD)
        if why := self._declines(victim):  # the drill may have been stopped, or another worker may have died
            return {DECLINED: why}
        self._killer.kill(victim)
        return None

    @property
    def _is_first(self) -> bool:
        return self._attempt.decision.attempts == 1 and not self._attempt.decision.restarts

    def _declines(self, victim: Victim) -> str | None:
        """Return why this attempt does not kill, or None if it may."""
        if self._killer is None:
            return "its worker does not allow it: RECOVERY_DRILL_KILL is off"
        store = self._app.resources.store
        process = store.processes.get_committed_brief(self._attempt.decision.process_id)
        if process is None or process.type != CANARY or process.state is not ProcessState.RUNNING:
            return "no running canary orders it"
        if process.reopened or process.epoch or not any(label.startswith(f"{LABEL}=") for label in process.labels):
            return "it does not belong to a drill"
        if process.started_at is None or (store.now() - process.started_at).total_seconds() > ORDER_TIMEOUT:
            return f"it was ordered over {ORDER_TIMEOUT:g} s ago"
        own = worker_of(self._attempt.decision.worker or "")
        alive = store.overview.workers_alive()
        if victim is Victim.WORKER and not any(CANARY in worker.queues for worker in alive if worker.id != own):
            return f"no other worker that serves {CANARY} is alive"
        return self._killer.declines(victim)


_DOES: dict[CanaryKind, Callable[[_CanaryTask], dict[str, str] | None]] = {
    CanaryKind.ROUND: _CanaryTask.round,
    CanaryKind.STEP: _CanaryTask.step,
    CanaryKind.WAIT: _CanaryTask.wait,
    CanaryKind.DROP: _CanaryTask.drop,
    CanaryKind.CALL: _CanaryTask.call,
    CanaryKind.KILL: _CanaryTask.kill,
}
