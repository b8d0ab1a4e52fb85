"""Workflows as processes: one task for each task of a workflow, and one that collects what the last ones made.

    recovery worker --app recovery.demo.app:app
    recovery run workflow.json

A task sleeps as long as its runtime says and returns a nonce, a text that no other execution returns. So who
uses a task's value tells which execution it is of; `audit` lives on that.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from typing import Any

from recovery.demo import ledger
from recovery.demo.failures import Failure
from recovery.drill.canary_actor import witnesses
from recovery.drill.canary_orders import Order
from recovery.engine import Recovery
from recovery.engine.actors.context import current
from recovery.records import Decision
from recovery.retry import Backoff

APP = f"{__name__}:app"
PROCESS = "workflow"

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


def _failure(number: int) -> Failure:
    decision = current("an actor of the demo").decision
    return Failure(f"{number}/{decision.task_id}", decision.attempts)


def _identity() -> dict[str, str]:
    decision = current("an actor of the demo").decision
    return {"process": decision.process_id, "id": decision.task_id}


def _nonce() -> str:
    return secrets.token_hex(8)


def _nonces(values: Sequence[dict[str, str]]) -> dict[str, str]:
    return {value["task"]: value["nonce"] for value in values}
