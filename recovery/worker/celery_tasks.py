"""Celery tasks, one per actor, and the slots that run their attempts. A task has its actor's name and its own queue."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from billiard.common import terminate_handler_fired
from billiard.einfo import ExceptionInfo, ExceptionWithTraceback
from billiard.exceptions import WorkerLostError
from celery import Celery, Task
from celery.exceptions import Ignore, Reject
from celery.worker.request import Request

from recovery.engine import Actor, Host, Intake, Pace, Recovery, Result, Slot, is_of_servers, tell
from recovery.log_lines import Seldom
from recovery.queue.message import SPARK_QUEUE, SWEEP
from recovery.records import Decision
from recovery.records.ids import holder
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages.intake import hints
from recovery.worker.messages.stale import StaleMessages
from recovery.worker.messages.transport import Channel
from recovery.worker.slots.board import Board, SharedBoard
from recovery.worker.slots.fitness import LIMIT, UNFIT, Fitness
from recovery.worker.slots.pool_process import OwnLifetime

log = logging.getLogger(__name__)
SAID = Seldom(log)
"""A limited log, because in an outage each message would log a line."""

_STATUS = re.compile(r"exited prematurely: (?:(?P<signal>signal \d+(?: \(\w+\))?)|exitcode (?P<code>\d+))")
"""The part of billiard's error message that says how a pool process ended."""
ENDED_UNFIT = f"ended with exit code {UNFIT}"


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """The parts of a worker that attempts and Celery's requests need. Made before the pool forks, so that its processes
    have them too."""

    lifeline: Lifeline
    stale: StaleMessages
    board: Board
    fitness: Fitness


class Running:
    """The worker to which this process belongs, as its parent or as one of its pool processes."""

    parts: WorkerParts | None = None
    """None in a process that does not belong to a worker."""
    intake: tuple[int, Intake] | None = None
    """The process id and the intake of this process: after a fork a process makes its own."""


class AttemptRequest(Request):  # type: ignore[misc]
    """Celery's request for a message of an actor, in the parent process.

    It reports to the lifeline if the pool process that ran the message died, or if the actor is blocked. It reports to
    `StaleMessages` if the message was stale.
    """

    def on_failure(self, exc_info: ExceptionInfo, *args: Any, **kwargs: Any) -> Any:
        error = exc_info.exception
        error = error.exc if isinstance(error, ExceptionWithTraceback) else error
        if Running.parts is not None:
            self._report(Running.parts, error)
        return super().on_failure(exc_info, *args, **kwargs)

    def _report(self, worker: WorkerParts, error: BaseException) -> None:
        match error:
            case WorkerLostError() | SystemExit() | KeyboardInterrupt() if self.worker_pid:
                how = _how_it_ended(error)
                worker.lifeline.child_died(self.worker_pid, how, worker.board.last_run(self.worker_pid))
                if how == ENDED_UNFIT:
                    note_unfit(worker, f"pool process {self.worker_pid}")
            case Reject():
                worker.lifeline.on_blocked_message()
            case Ignore():
                worker.stale.met(self.name)


def note_unfit(worker: WorkerParts, slot: str) -> None:
    """Log that a slot could run none of the tasks that it claimed. If this is not the first slot in a row, make the
    worker take no tasks for a while."""
    worker.fitness.ended_unfit()
    log.error(
        "%s of this worker could run none of the last %d tasks that it claimed (%s): check what this machine lacks",
        slot, LIMIT, worker.fitness.reason,
    )  # fmt: skip
    if not worker.fitness.may_take():
        log.error("replaced slots can run no task either: this worker takes nothing for a while")
        worker.lifeline.hold()


def _how_it_ended(error: BaseException) -> str:
    """Return how a pool process ended, according to the pool; empty if that is not known."""
    # raised in the process, and passed on by the pool before the process ends
    if isinstance(error, SystemExit) and error.code:
        return f"ended with exit code {error.code}"
    status = _STATUS.search(str(error)) if isinstance(error, WorkerLostError) else None
    if status is None:
        return ""
    return f"was ended by {status['signal']}" if status["signal"] else f"ended with exit code {status['code']}"


class AttemptTask(Task):  # type: ignore[misc]
    """The base class of all actors' tasks."""

    Request = AttemptRequest
    abstract = True
    acks_late = True
    ignore_result = True


def register(celery: Celery, app: Recovery) -> None:
    """Register a Celery task for each actor of `app`, and one that orders sweeps."""
    for actor in app.actors.values():
        celery.task(_attempt(app, actor), name=actor.name, base=AttemptTask)
    celery.task(_sweep(app), name=SWEEP, queue=SPARK_QUEUE, acks_late=False)


def _attempt(app: Recovery, actor: Actor[..., Any]) -> Any:
    def attempt(decision_id: str, pass_key: str) -> None:
        slot = _slot(app)
        try:
            result = slot.run(actor, decision_id, pass_key)
            _end_if_unfit(slot)
        except GivenBack:
            log.info("%s: its result is discarded, because the task was given back", slot.last or decision_id)
            return
        except Exception as error:
            if is_of_servers(error):
                SAID.warning("could not finish %s (%s); it is requeued", decision_id, error)
                return
            tell(decision_id, error)  # caused by what another program wrote: the task is found by its deadline
            slot.host.was_not_done(decision_id, None, error)
            _end_if_unfit(slot)
            return
        except BaseException:
            if threading.current_thread() is threading.main_thread():
                raise  # the pool process ends, and its parent sees it
            # Not an error of the actor, which would be its task's error. In a thread of a pool this exception would be
            # lost, and its message never acknowledged.
            cut_off = slot.last or decision_id
            log.exception("%s: the attempt was cut off; another attempt begins at its deadline", cut_off)
            return
        if result is Result.BLOCKED:
            raise Reject(f"{actor.name} is blocked", requeue=True)  # the decision stays queued under this pass
        if result is Result.STALE_MESSAGE:
            raise Ignore("stale message")  # reports this to the parent process

    attempt.__module__ = actor.function.__module__
    return attempt


def _end_if_unfit(slot: Slot) -> None:
    """End this pool process if it can run no task, after it has given back those that it could not run. A thread can't
    be replaced, so it only reports that it is unfit."""
    worker = Running.parts
    if worker is None or not worker.fitness.is_unfit:
        return
    try:
        slot.give_back_unrun(worker.fitness.take_unrun(), RuntimeError(worker.fitness.reason))
    except Exception as error:  # the tasks are found by their deadlines
        log.warning("could not give unrun tasks back (%s); they are requeued at their deadlines", error)
    if isinstance(worker.board, SharedBoard):
        raise SystemExit(UNFIT)
    note_unfit(worker, f"thread {threading.get_native_id()}")


def _slot(app: Recovery) -> Slot:
    """Return a slot for attempts in this pool process or thread. Each slot claims under a name of its own, because two
    slots that take the same message must not mistake each other's claim for their own."""
    worker = Running.parts
    assert worker is not None, "attempts run in workers"
    record = worker.lifeline.worker
    served = {name: app.actors[name] for name in record.queues}
    thread = None if threading.current_thread() is threading.main_thread() else threading.get_native_id()
    name = holder(record.id, os.getpid(), thread)
    return Slot(app.resources, app.outbox, served, name, PoolHost(worker.board, worker.fitness), _intake(app))


def _intake(app: Recovery) -> Intake | None:
    """Return the intake of this process; None outside workers, because only workers take messages."""
    if (messages := Channel.intake) is None:
        return None
    if Running.intake is None or Running.intake[0] != os.getpid():
        take = hints(app.resources.broker, messages, _takes_more)
        Running.intake = os.getpid(), Intake(take, Pace(app.settings.batch_size))
    return Running.intake[1]


def _takes_more() -> bool:
    """Return whether slots of this process may take messages by themselves. They may not if the process is about to
    end."""
    return (Running.parts is None or Running.parts.board.takes_more) and not OwnLifetime.lifetime.is_over


def _sweep(app: Recovery) -> Any:
    def sweep(repair: bool = False, every: float = 0.0) -> None:
        """Order a sweep if one is due."""
        from recovery.sweep import order_if_due

        if (operation := order_if_due(app.resources, every, repair=repair)) is not None:
            log.info("operation %d is ordered: a sweep", operation.id)

    return sweep


class GivenBack(BaseException):
    """The end of an attempt whose result is dropped, because its worker gives its tasks back and is forced to end."""


class PoolHost(Host):
    """The host of attempts in one process or thread of a Celery pool. It writes on the board what its slot runs."""

    def __init__(self, board: Board, fitness: Fitness) -> None:
        self._board, self._fitness = board, fitness

    @contextmanager
    def running(self, decision: Decision, timeout: float) -> Iterator[None]:
        """Note an attempt on the board while it runs.

        Raises:
            GivenBack: The board is closed, before the attempt or after it. The subprocesses of an attempt are then
                stopped and killed, so the attempt may have failed because of that, or have returned a meaningless
                value.
        """
        self._raise_if_closed()
        OwnLifetime.lifetime.note_task()
        self._board.enter(decision, timeout)
        try:
            yield
        finally:
            self._board.leave()
        self._raise_if_closed()

    @property
    def takes_more(self) -> bool:
        """Whether this pool process is below its limits of tasks and memory."""
        return not OwnLifetime.lifetime.is_over

    def was_done(self) -> None:
        self._fitness.was_done()

    def was_not_done(self, decision_id: str, pass_key: str | None, error: Exception) -> None:
        self._fitness.was_not_done(decision_id, pass_key, error)

    def _raise_if_closed(self) -> None:
        if self._board.closed:
            raise GivenBack

    def ends(self, error: BaseException) -> bool:
        """Return whether an error means the end of this process. A prefork process that is told to end (SIGTERM from
        its parent) raises SystemExit in the code that it runs, which may turn it into another error."""
        return bool(terminate_handler_fired()) or super().ends(error)
