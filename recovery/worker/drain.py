"""The shutdown of a worker. On SIGTERM it takes no more messages and lets running tasks end within `shutdown_grace`. It
gives the other tasks back at once (working → queued, without counting a timeout; tasks that are not idempotent fail
instead), and exits.

A worker with a hung thread shuts down in the same way, because nobody can kill a thread. It does not wait for the hung
thread, and its exit code is HUNG.

A task that was given back must not run here and elsewhere at once. Its result here must not count either, because an
attempt whose subprocess is killed fails. Processes of a pool are killed before their subprocesses. Threads run until
the worker's last moment, so the steps are

    1. close the board          actors' results are dropped from now on, even if their claims can't be given back
    2. stop all subprocesses    they do nothing more
    3. give claims back         if MongoDB is away, they are requeued once this worker's heartbeat is overdue
    4. kill all subprocesses    and exit in the same moment
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
"""Seconds between two checks whether tasks still run, or the pool has ended."""
POOL_TIMEOUT = 5.0
"""Maximum seconds that an idle pool takes to end; it usually takes milliseconds. If a message arrives just when the
worker is told to end, Celery may forget the message, and its pool may wait for an end that nobody has announced to it.
"""


class Drain:
    """The shutdown of one worker. Running tasks get `shutdown_grace` to end; the claims of all others are given back.

    `pool_pids` returns the ids of the worker's pool processes: none for threads.
    """

    def __init__(self, app: Recovery, lifeline: Lifeline, board: Board, pool_pids: Callable[[], Iterable[int]]) -> None:
        self._app, self._lifeline, self._board, self._pool_pids = app, lifeline, board, pool_pids
        self._begun, self._pool_ended = threading.Event(), threading.Event()
        self._exit_code = 0
        self._hung: Callable[[], int] = lambda: 0

    def begin_hung(self, hung: Callable[[], int]) -> None:
        """Shut the worker down because threads of it hang; `hung` returns how many."""
        self._exit_code, self._hung = HUNG, hung
        state.should_stop = HUNG  # makes Celery's own main loop take no more messages
        self.begin()

    def begin(self) -> None:
        """Start the shutdown clock, because the worker was told to end. May be called more than once, also from a
        signal handler."""
        if not self._begun.is_set():
            self._begun.set()
            self._board.take_no_more()
            # Not a daemon thread: if the threads come back meanwhile, Celery ends only after this thread has killed the
            # processes that it stopped.
            if not try_start(threading.Thread(target=self._force, name="drain")):
                self._begun.clear()  # the next signal to end starts the clock

    def finish(self) -> None:
        """Give back the remaining tasks after the pool has ended in time, and remove the worker's record."""
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
        except Exception:  # no error may keep this process from ending
            log.exception(
                "could not finish the shutdown: this worker's tasks are requeued once its heartbeat is overdue"
            )
        finally:
            os._exit(self._exit_code)  # otherwise Celery would wait for the tasks that were given back

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
            log.warning("shutdown_grace is over, or nothing else runs: unfinished tasks were given back")
        finally:
            tracing.flush()
            logging.shutdown()
            kill_descendants(stopped)

    def _running(self) -> int:
        """Return how many tasks the slots hold. It is the larger of two counts: Celery forgets running tasks when it
        loses the connection to Redis, but only Celery knows of tasks that are not an actor's."""
        cells = self._board.cells()
        if self._is_over():  # no pool process is left, whatever the board shows; threads may go on
            return sum(cell.pid == os.getpid() for cell in cells)
        return max(len(state.reserved_requests), len(cells))

    def _ends_by_itself(self) -> bool:
        """Return whether Celery's pool ended in order. It does not if the worker was told to end quickly (SIGQUIT)."""
        poll(self._is_over, POOL_TIMEOUT, LOOK_EVERY)
        return self._pool_ended.is_set()

    def _is_over(self) -> bool:
        return self._pool_ended.is_set() or not threading.main_thread().is_alive()

    def give_back(self) -> None:
        """Requeue all tasks that this worker still holds and that may be run again. Other tasks end with an error, as
        for any worker that is gone (`rescue`)."""
        resources, worker = self._app.resources, self._lifeline.worker.id
        try:
            self._flush()
            while working := self._restartable(worker):
                holders = sorted({decision.worker for decision in working if decision.worker})
                ids = [decision.id for decision in working]
                queued = resources.store.requeues.requeue_given_back(ids, holders, new_pass())
                requeued_ids = {decision.id for decision in queued}
                lost = (decision for decision in working if decision.id in requeued_ids)
                repairing = tracing.repairing(lost, resources.store.decisions.claims)
                push(resources, queued)
                count_requeued("GIVEN_BACK", [decision.actor for decision in queued])
                tracing.repaired("GIVEN_BACK", repairing)
        except StoreError as error:
            log.warning(
                "could not give tasks back (%s): they are requeued once this worker's heartbeat is overdue", error
            )

    def _restartable(self, worker: str) -> list[Decision]:
        store, settings = self._app.resources.store, self._app.resources.settings
        working = store.decisions.held_by([worker], settings.scan_batch, DecisionState.WORKING)
        preferences = store.actors.all() if working else {}
        return [
            decision
            for decision in working
            if decision.actor not in preferences or preferences[decision.actor].restarts_lost_attempts
        ]

    def _flush(self) -> None:
        """Apply what has finished here. Other workers repair processes whose records are damaged."""
        try:
            self._app.outbox.flush()
        except StoreError:
            raise
        except Exception:  # caused by what another program wrote into a record
            log.exception("could not apply all finished tasks: the others are applied after the apply timeout")

    def _remove(self) -> None:
        """Apply what the pool had finished but not yet reported as applied, then remove this worker's record."""
        resources = self._app.resources
        try:
            rescue(resources, Repairer(resources, self._app.outbox), [self._lifeline.worker.id])
        except (StoreError, BrokerError) as error:
            log.warning("could not remove this worker's record (%s): others find it overdue", error)
