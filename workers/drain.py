"""The end of a worker. On SIGTERM it takes no more messages, lets what runs end within `shutdown_grace`, gives
the rest back at once (working → queued, without counting a timeout) and is gone."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable

from celery.worker import state
from pymongo.errors import PyMongoError
from redis.exceptions import RedisError

from recovery import metrics
from recovery.engine import Recovery, push
from recovery.records import DecisionState
from recovery.records.ids import new_pass
from recovery.repair import Repairer
from recovery.scan import rescue
from workers.lifeline import Lifeline

log = logging.getLogger(__name__)


class Drain:
    """Ends one worker's claims. `pool_pids` gives the pids of the pool's processes, if it has any."""

    def __init__(self, app: Recovery, lifeline: Lifeline, pool_pids: Callable[[], Iterable[int]]) -> None:
        self._app, self._lifeline, self._pool_pids = app, lifeline, pool_pids
        self._begun = threading.Event()

    def begin(self) -> None:
        """The worker was told to end: start the clock. Called once or more, from a signal handler."""
        if not self._begun.is_set():
            self._begun.set()
            threading.Thread(target=self._force, name="drain", daemon=True).start()

    def finish(self) -> None:
        """The pool has ended in time: nothing is left but the worker's record."""
        self.give_back()
        self._lifeline.stop()
        self._remove()

    def _force(self) -> None:
        deadline = time.monotonic() + self._app.settings.shutdown_grace
        pause = threading.Event()
        while state.reserved_requests and time.monotonic() < deadline:
            pause.wait(0.05)
        if not state.reserved_requests:
            return  # Celery ends by itself
        # Killed before it is given back: a task must not run here and elsewhere at once.
        self._lifeline.stop()
        for pid in self._pool_pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.give_back()
        self._remove()
        log.warning("shutdown_grace is over: the rest was given back")
        logging.shutdown()
        os._exit(0)  # Celery would wait for the tasks that were given back

    def give_back(self) -> None:
        """Requeue everything that this worker still holds."""
        resources, worker = self._app.resources, self._lifeline.worker.id
        try:
            self._app.applier.flush()
            while working := resources.store.decisions.held_by(
                [worker], resources.settings.scan_batch, DecisionState.WORKING
            ):
                holders = sorted({decision.worker for decision in working if decision.worker})
                ids = [decision.id for decision in working]
                queued = resources.store.requeues.given_back(ids, holders, new_pass())
                push(resources, queued)
                metrics.REQUEUES.labels("GIVEN_BACK").inc(len(queued))
        except PyMongoError as error:
            log.warning("could not give back (%s): it is found once this worker's heartbeat is overdue", error)

    def _remove(self) -> None:
        """Apply what the pool had finished and not yet said to be applied, then forget this worker."""
        resources = self._app.resources
        try:
            rescue(resources, Repairer(resources, self._app.applier), [self._lifeline.worker.id])
        except (PyMongoError, RedisError) as error:
            log.warning("worker record not removed (%s): it will be overdue", error)
