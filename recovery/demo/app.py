"""Workflows as processes: one task for each task of a workflow, and one that collects what the last ones made.

    recovery worker --app recovery.demo.app:app
    recovery run workflow.json

A task sleeps as long as its runtime says and returns a nonce, a text that no other execution returns. So who
uses a task's value tells which execution it is of; `audit` lives on that.

A part of the attempts fails for what passes by itself, by the demo's seed. The environment says so, so that every
process of a worker fails alike: WORKFLOW_FAIL is the part, from 0 to 1, and WORKFLOW_SEED the seed. Which attempt of
which task fails, and how, follows from both alone; whether it fails before it has done anything or after it has written
its line is as good as chance, too.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Sequence
from random import Random
from typing import Any

from recovery.demo import ledger
from recovery.drill.canary_actor import Order, witnesses
from recovery.engine import Recovery
from recovery.engine.actors.context import current
from recovery.records import Decision
from recovery.retry import Backoff
from recovery.wfformat.workload import PROCESS

PART, SEED = "WORKFLOW_FAIL", "WORKFLOW_SEED"
_ERRORS = (
    ConnectionRefusedError(errno.ECONNREFUSED, "the demo's host is away"),
    ConnectionResetError(errno.ECONNRESET, "the demo's host closed the connection"),
    TimeoutError(errno.ETIMEDOUT, "the demo's host gave no answer"),
    BlockingIOError(errno.EAGAIN, "the demo's machine has no room"),
)


class InjectedFailure:
    """What befalls one attempt: nothing, mostly; or an error, before or after its work."""

    def __init__(self, task: str, attempt: int) -> None:
        chance = Random(f"{os.environ.get(SEED, '')}/{task}/{attempt}")
        fails = chance.random() < float(os.environ.get(PART) or 0)
        self._before = chance.random() < 0.5
        self._error = chance.choice(_ERRORS) if fails else None

    def before(self) -> None:
        """Fail, if it is to fail before its work."""
        if self._error is not None and self._before:
            raise self._error

    def after(self) -> None:
        """Fail, if it is to fail when the work is done: its line is there, and its value will never be."""
        if self._error is not None:
            raise self._error


def failure_environment(part: float, seed: int) -> dict[str, str]:
    """Return the variables that make workers fail alike."""
    return {PART: f"{part:g}", SEED: str(seed)} if part else {}


APP = f"{__name__}:app"

app = Recovery()

# A sleeping task beats, so only a dead one times out; the time-out is what a task costs whose worker and all
# workers of its host died at once. That many lost attempts are our own kills, and not the task's fault.
_PATIENT: dict[str, Any] = {
    "auto_heartbeat": True,
    "worker_timeout": 10.0,
    "max_work_timeouts": 1000,
    # Quicker than anybody would try a real host again: a demo is watched.
    "retry": Backoff(initial=0.5, coefficient=1.2, jitter=(0, 0.5), maximum=3),
}


@app.process(PROCESS, **_PATIENT)
def workflow(tasks: list[tuple[str, list[str], float]], time_scale: float, number: int = 0) -> Any:
    """Run `[id, parents, runtime]`, parents first; the result is `collect`'s, of the tasks that none waits for. By its
    `number` each process of a demo has failures of its own."""
    promises: dict[str, Any] = {}
    inner: set[str] = set()
    for task, parents, runtime in tasks:
        seen = [promises[parent] for parent in parents]
        promises[task] = workflow_task.schedule(task, runtime * time_scale, seen, number)
        inner.update(parents)
    return collect.schedule([promise for task, promise in promises.items() if task not in inner], number)


@app.actor("workflow_task", **_PATIENT)
def workflow_task(task: str, seconds: float, parents: list[dict[str, str]], number: int = 0) -> dict[str, str]:
    """Sleep, then return a new nonce."""
    failure = _failure(number)
    failure.before()
    time.sleep(seconds)
    value = {"task": task, "nonce": _nonce()}
    ledger.append({**_identity(), **value, "seen": _nonces(parents)})
    failure.after()
    return value


@app.actor("collect", **_PATIENT)
def collect(leaves: list[dict[str, str]], number: int = 0) -> dict[str, Any]:
    """Return what the last tasks of the workflow returned, and a nonce of this execution."""
    failure = _failure(number)
    failure.before()
    value: dict[str, Any] = {"nonce": _nonce(), "leaves": _nonces(leaves), "count": len(leaves)}
    ledger.append({**_identity(), "nonce": value["nonce"], "seen": value["leaves"], "final": True})
    failure.after()
    return value


def _write_down(decision: Decision, _: Order) -> None:
    """An attempt of a canary begins."""
    ledger.append(
        {
            "canary": decision.process_id,
            "id": decision.task_id,
            "attempt": decision.attempts,
            "at": time.time(),
            "pid": os.getpid(),
            "worker": decision.worker or "",
        }
    )


witnesses.append(_write_down)


def _failure(number: int) -> InjectedFailure:
    decision = current("an actor of the demo").decision
    return InjectedFailure(f"{number}/{decision.task_id}", decision.attempts)


def _identity() -> dict[str, str]:
    decision = current("an actor of the demo").decision
    return {"process": decision.process_id, "id": decision.task_id}


def _nonce() -> str:
    return secrets.token_hex(8)


def _nonces(values: Sequence[dict[str, str]]) -> dict[str, str]:
    return {value["task"]: value["nonce"] for value in values}
