"""The canary of a worker: `recovery.canary` among the actors that it serves, and how an attempt of it kills.

It is added to the application's actors in workers alone: nobody else starts a canary but a drill. A worker that serves
only some queues (`--queues`) serves this one as well; one that serves no actor at all, as one for sweeps, does not.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import suppress
from typing import Any

from recovery.drill.canary_actor import Victim, canary_actor
from recovery.engine import Recovery
from recovery.records.ids import CANARY
from recovery.worker.celery_tasks import Running

log = logging.getLogger(__name__)


def add_canary(app: Recovery) -> None:
    """Have the workers of this application serve the canary, unless they are told not to."""
    if app.settings.canary:
        app.actors[CANARY] = canary_actor(app, PoolKiller() if app.settings.drill_kill else None)


def consume_canary(queues: Any, served: Recovery) -> None:
    """Have a worker that consumes some actor's queue consume the canary's; `queues` are Celery's, before it starts."""
    if CANARY in served.actors and CANARY not in queues.consume_from and set(queues.consume_from) & set(served.actors):
        queues.select_add(queues[CANARY])


_THREADS = "its pool is of threads, which can't be killed one by one"
_FIRST = (
    "its worker is the first process of its container, and the kernel lets none of the others kill that: run it under "
    "an init (`docker run --init`, in compose `init: true`)"
)


def _first_of_container(pid: int) -> str | None:
    return _FIRST if pid == 1 else None


class PoolKiller:
    """Kills where it runs: in a slot of a worker."""

    def declines(self, victim: Victim) -> str | None:
        """Why it can't kill that; None: it can."""
        if Running.parts is None:
            return "it does not run in a worker"
        worker = Running.parts.lifeline.worker.pid
        if os.getpid() == worker:
            # A thread can't be killed by itself; of what the worker runs beside it nothing was said.
            return _THREADS if victim is Victim.SLOT else _first_of_container(worker)
        if os.getppid() != worker:
            return "its worker is gone already"
        return _first_of_container(worker) if victim is Victim.WORKER else None

    def kill(self, victim: Victim) -> None:
        """By SIGKILL, as the kernel does it when memory is short. With a worker its pool ends by itself."""
        log.warning("a drill has %s killed", "this worker" if victim is Victim.WORKER else "this pool process")
        parent = os.getppid()
        if victim is Victim.WORKER and Running.parts is not None and parent == Running.parts.lifeline.worker.pid:
            with suppress(ProcessLookupError):
                os.kill(parent, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()  # it comes at once
