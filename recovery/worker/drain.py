"""The end of a worker. On SIGTERM it takes no more messages, lets what runs end within `shutdown_grace`, gives
the rest back at once (working → queued, without counting a timeout; what is not idempotent ends instead) and is gone.
So it is where a thread of it hangs, which nobody can kill; then the exit code is HUNG, and it is not waited for.

What was given back must not run here and elsewhere at once, nor may its end here count, which is none: an attempt whose
subprocess is killed fails. Processes of a pool are killed before what they started. Threads go on until the worker's
last moment, so

    the board is closed        what comes back from an actor is dropped, whether its claim can be given back or not
    all subprocesses stop      and stand still
    claims are given back      or, with the database away, found once this worker's heartbeat is overdue
    all subprocesses are killed, and in the same moment the worker is gone
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable

from celery.worker import state

from recovery import tracing
from recovery.engine import Recovery, push
from recovery.errors import BrokerError, StoreError
from recovery.metrics.registry import count_requeued
from recovery.records import Decision, DecisionState
from recovery.records.ids import new_pass
from recovery.repair import Repairer
from recovery.scan import rescue
from recovery.threads import poll, try_start
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.slots.board import HUNG, Board
from recovery.worker.slots.killing import kill_all, kill_descendants, stop_descendants

log = logging.getLogger(__name__)

LOOK_EVERY = 0.05
"""Seconds between two looks whether tasks still run, or the pool has ended."""
POOL_TIMEOUT = 5.0
"""Seconds that an idle pool takes to end at most; it takes milliseconds. Where a message comes just when the worker is
preferences to end, Celery may forget it and its pool still wait for its end, which was preferences to nobody."""


class Drain:
    """Ends one worker's claims. `pool_pids` gives the pids of the pool's processes, if it has any."""

    def __init__(self, app: Recovery, lifeline: Lifeline, board: Board, pool_pids: Callable[[], Iterable[int]]) -> None:
        self._app, self._lifeline, self._board, self._pool_pids = app, lifeline, board, pool_pids
        self._begun, self._pool_ended = threading.Event(), threading.Event()
        self._exit_code = 0
        self._hung: Callable[[], int] = lambda: 0

    def begin_hung(self, hung: Callable[[], int]) -> None:
        """End the worker because threads of it hang; `hung` returns how many."""
        self._exit_code, self._hung = HUNG, hung
        state.should_stop = HUNG  # Celery's own main loop takes no more messages
        self.begin()

    def begin(self) -> None:
        """Start the clock, because the worker was preferences to end. May be called more than once, also from a signal
        handler."""
        if not self._begun.is_set():
            self._begun.set()
            self._board.take_no_more()
            # No daemon: where its threads come back meanwhile, Celery ends only after this one killed what it stopped.
            if not try_start(threading.Thread(target=self._force, name="drain")):
                self._begun.clear()  # whoever tells the worker once more to end starts the clock

    def finish(self) -> None:
        """Give back what is left after the pool has ended in time, and remove the worker's record."""
        self._pool_ended.set()
        self.give_back()
        self._lifeline.stop()
        self._remove()

    def _force(self) -> None:
        poll(lambda: self._running() <= self._hung(), self._app.settings.shutdown_grace, LOOK_EVERY)
        if not self._running() and self._ends_by_itself():
            return
        try:
            self._end_now()
        except Exception:  # whatever it is, it must not keep this process from ending
            log.exception("this worker's end was cut short: what it held is found once its heartbeat is overdue")
        finally:
            os._exit(self._exit_code)  # Celery would wait for the tasks that were given back

    def _end_now(self) -> None:
        self._lifeline.stop()
        self._board.close()
        pool = list(self._pool_pids())
        stopped = stop_descendants(pool)
        if pool:
            kill_all(stopped)
        try:
            self.give_back()
            self._remove()
            log.warning("shutdown_grace is over, or nothing else runs: the rest was given back")
        finally:
            tracing.flush()
            logging.shutdown()
            kill_descendants(stopped)

    def _running(self) -> int:
        """Return how many tasks the slots hold. Celery forgets what runs when it loses the connection to Redis, but
        only Celery knows of tasks that are not an actor's."""
        cells = self._board.cells()
        if self._is_over():  # no process of the pool is left, whatever stands on the board; threads may go on
            return sum(cell.pid == os.getpid() for cell in cells)
        return max(len(state.reserved_requests), len(cells))

    def _ends_by_itself(self) -> bool:
        """Whether Celery's pool ended in order. It does not if the worker was preferences to be quick (SIGQUIT)."""
        poll(self._is_over, POOL_TIMEOUT, LOOK_EVERY)
        return self._pool_ended.is_set()

    def _is_over(self) -> bool:
        return self._pool_ended.is_set() or not threading.main_thread().is_alive()

    def give_back(self) -> None:
        """Requeue all tasks that this worker still holds, except those that must not be done again because they may
        have been done: these end with an error, as with any worker that is gone (`rescue`)."""
        resources, worker = self._app.resources, self._lifeline.worker.id
        try:
            self._flush()
            while working := self._restartable(worker):
                holders = sorted({decision.worker for decision in working if decision.worker})
                ids = [decision.id for decision in working]
                queued = resources.store.requeues.requeue_given_back(ids, holders, new_pass())
                given = {one.id for one in queued}
                lost = (decision for decision in working if decision.id in given)
                repairing = tracing.repairing(lost, resources.store.decisions.claims)
                push(resources, queued)
                count_requeued("GIVEN_BACK", [one.actor for one in queued])
                tracing.repaired("GIVEN_BACK", repairing)
        except StoreError as error:
            log.warning("could not give back (%s): it is found once this worker's heartbeat is overdue", error)

    def _restartable(self, worker: str) -> list[Decision]:
        store, settings = self._app.resources.store, self._app.resources.settings
        working = store.decisions.held_by([worker], settings.scan_batch, DecisionState.WORKING)
        preferences = store.actors.all() if working else {}
        return [one for one in working if one.actor not in preferences or preferences[one.actor].restarts_lost_attempts]

    def _flush(self) -> None:
        """Apply what has finished here. Other workers repair processes whose records are damaged."""
        try:
            self._app.outbox.flush()
        except StoreError:
            raise
        except Exception:  # of what another program wrote into a record
            log.exception("could not apply all that is finished here: it is done again after the apply timeout")

    def _remove(self) -> None:
        """Apply what the pool had finished but not yet reported as applied, then remove this worker's record."""
        resources = self._app.resources
        try:
            rescue(resources, Repairer(resources, self._app.outbox), [self._lifeline.worker.id])
        except (StoreError, BrokerError) as error:
            log.warning("worker record not removed (%s): it will be overdue", error)
