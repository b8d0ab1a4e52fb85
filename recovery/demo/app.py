"""Workflows as processes: one task for each task of a workflow, and one that collects the results of the last tasks.

    recovery worker --app recovery.demo.app:app
    recovery run workflow.json

A task sleeps for its runtime and returns a nonce, a text that no other execution returns. So the users of a task's
value show which execution made it. `audit` relies on this.

Some attempts fail with a transient error, as the demo's seed decides. All pool processes read the same environment
variables, so they agree: WORKFLOW_FAIL is the fraction of attempts that fail, from 0 to 1, and WORKFLOW_SEED the seed.
Both decide which attempt of which task fails, with which error, and whether before its work or after it has written its
line.
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
    """The fate of one attempt: usually nothing, otherwise an error before or after its work."""

    def __init__(self, task: str, attempt: int) -> None:
        random = Random(f"{os.environ.get(SEED, '')}/{task}/{attempt}")
        fails = random.random() < float(os.environ.get(PART) or 0)
        self._before = random.random() < 0.5
        self._error = random.choice(_ERRORS) if fails else None

    def before(self) -> None:
        """Raise the error, if there is one that comes before the work."""
        if self._error is not None and self._before:
            raise self._error

    def after(self) -> None:
        """Raise the error, if any, after the work: the attempt's line is written, but its value is not accepted."""
        if self._error is not None:
            raise self._error


def failure_environment(part: float, seed: int) -> dict[str, str]:
    """Return the environment variables that make all workers fail in the same way."""
    return {PART: f"{part:g}", SEED: str(seed)} if part else {}


APP = f"{__name__}:app"

app = Recovery()

# A sleeping task sends heartbeats, so only a dead one times out. This timeout applies if a task's worker and all
# workers of its host die at once. The demo kills attempts on purpose, so lost attempts must not break a task.
_PREFERENCES: dict[str, Any] = {
    "auto_heartbeat": True,
    "worker_timeout": 10.0,
    "max_work_timeouts": 1000,
    # Short, because a person watches the demo. For a real host the delays would be longer.
    "retry": Backoff(initial=0.5, coefficient=1.2, jitter=(0, 0.5), maximum=3),
}


@app.process(PROCESS, **_PREFERENCES)
def workflow(tasks: list[tuple[str, list[str], float]], time_scale: float, number: int = 0) -> Any:
    """Run tasks `[id, parents, runtime]`, given parents first, and return the result of `collect` for the tasks without
    children. Each process of a demo has its own failures, by its `number`."""
    promises: dict[str, Any] = {}
    inner: set[str] = set()
    for task, parents, runtime in tasks:
        parent_promises = [promises[parent] for parent in parents]
        promises[task] = workflow_task.schedule(task, runtime * time_scale, parent_promises, number)
        inner.update(parents)
    return collect.schedule([promise for task, promise in promises.items() if task not in inner], number)


@app.actor("workflow_task", **_PREFERENCES)
def workflow_task(task: str, seconds: float, parents: list[dict[str, str]], number: int = 0) -> dict[str, str]:
    """Sleep for `seconds`, and return a new nonce."""
    failure = _failure(number)
    failure.before()
    time.sleep(seconds)
    value = {"task": task, "nonce": _nonce()}
    ledger.append({**_identity(), **value, "seen": _nonces(parents)})
    failure.after()
    return value


@app.actor("collect", **_PREFERENCES)
def collect(leaves: list[dict[str, str]], number: int = 0) -> dict[str, Any]:
    """Return the values of the workflow's last tasks, and a nonce of this execution."""
    failure = _failure(number)
    failure.before()
    value: dict[str, Any] = {"nonce": _nonce(), "leaves": _nonces(leaves), "count": len(leaves)}
    ledger.append({**_identity(), "nonce": value["nonce"], "seen": value["leaves"], "final": True})
    failure.after()
    return value


def _record_flight(decision: Decision, _: Order) -> None:
    """Record in the ledger that an attempt of a canary begins."""
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


witnesses.append(_record_flight)


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
