"""A worker's canary: it adds `recovery.canary` to the actors that a worker serves, and kills processes for a drill.

The canary is added to the application's actors only in workers, because only a drill starts canaries. A worker that
serves only some queues (`--queues`) serves the canary as well. A worker that serves no actor, such as one for sweeps,
does not.
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
    """Make the workers of this application serve the canary, unless the setting `canary` is off."""
    if app.settings.canary:
        app.actors[CANARY] = canary_actor(app, PoolKiller() if app.settings.drill_kill else None)


def consume_canary(queues: Any, served: Recovery) -> None:
    """Make a worker that consumes some actor's queue consume the canary's queue too. `queues` are Celery's, before the
    worker starts."""
    if CANARY in served.actors and CANARY not in queues.consume_from and set(queues.consume_from) & set(served.actors):
        queues.select_add(queues[CANARY])


_NO_THREADS = "its pool is of threads, which can't be killed one by one"
_FIRST_PROCESS = (
    "its worker is the first process of its container, and the kernel lets none of the others kill that: run it under "
    "an init (`docker run --init`, in compose `init: true`)"
)


def _first_of_container(pid: int) -> str | None:
    return _FIRST_PROCESS if pid == 1 else None


class PoolKiller:
    """A killer of the slot or the worker in which it is called."""

    def declines(self, victim: Victim) -> str | None:
        """Return why it can't kill this victim; None if it can."""
        if Running.parts is None:
            return "it does not run in a worker"
        worker = Running.parts.lifeline.worker.pid
        if os.getpid() == worker:
            # A thread can't be killed alone, and an order to kill one slot does not cover the worker's other slots.
            return _NO_THREADS if victim is Victim.SLOT else _first_of_container(worker)
        if os.getppid() != worker:
            return "its worker has already ended"
        return _first_of_container(worker) if victim is Victim.WORKER else None

    def kill(self, victim: Victim) -> None:
        """Send SIGKILL to this pool process, or to its worker, as the kernel does when memory is short. The pool of a
        killed worker ends by itself."""
        log.warning("a drill kills %s", "this worker" if victim is Victim.WORKER else "this pool process")
        parent = os.getppid()
        if victim is Victim.WORKER and Running.parts is not None and parent == Running.parts.lifeline.worker.pid:
            with suppress(ProcessLookupError):
                os.kill(parent, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()  # until the signal arrives
