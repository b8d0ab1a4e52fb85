"""Celery tasks, one per actor, named as the actor and with its own queue, and the slots that run their attempts."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from billiard.common import terminate_handler_fired
from billiard.einfo import ExceptionInfo, ExceptionWithTraceback
from billiard.exceptions import WorkerLostError
from celery import Celery, Task
from celery.exceptions import Ignore, Reject
from celery.worker.request import Request

from recovery.engine import Actor, Batches, Host, Recovery, Result, Slot, is_of_servers, tell
from recovery.log_lines import Seldom
from recovery.records import Decision
from recovery.records.ids import holder
from recovery.worker.celery_config import SPARK_QUEUE, SWEEP
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages.intake import hints
from recovery.worker.messages.stale import StaleMessages
from recovery.worker.messages.transport import Channel
from recovery.worker.slots.board import Board, SharedBoard
from recovery.worker.slots.fitness import LIMIT, UNFIT, Fitness
from recovery.worker.slots.pool_process import OwnLifetime

log = logging.getLogger(__name__)
SAID = Seldom(log)
"""Of an outage each message would tell."""

_STATUS = re.compile(r"exited prematurely: (?:(?P<signal>signal \d+(?: \(\w+\))?)|exitcode (?P<code>\d+))")
"""In billiard's words."""
ENDED_UNFIT = f"ended with exit code {UNFIT}"


class Running:
    """Parts of the worker that this process, or its parent, is; None in any other process."""

    lifeline: Lifeline | None = None
    stale: StaleMessages | None = None
    board: Board | None = None
    fitness: Fitness | None = None
    batches: tuple[int, Batches] | None = None
    """And the process that has them: a fork makes its own."""


class AttemptRequest(Request):  # type: ignore[misc]
    """Tells the lifeline when the pool child that ran the message died, or may not run it, and `StaleMessages` when it
    was stale. Runs in the parent process."""

    def on_failure(self, exc_info: ExceptionInfo, *args: Any, **kwargs: Any) -> Any:
        error = exc_info.exception
        error = error.exc if isinstance(error, ExceptionWithTraceback) else error
        died = isinstance(error, WorkerLostError | SystemExit | KeyboardInterrupt)
        if died and self.worker_pid and Running.lifeline is not None:
            ran = Running.board.last_run(self.worker_pid) if Running.board is not None else None
            how = _how_it_ended(error)
            Running.lifeline.child_died(self.worker_pid, how, ran)
            if how == ENDED_UNFIT:
                note_unfit(f"pool process {self.worker_pid}")
        if isinstance(error, Reject) and Running.lifeline is not None:
            Running.lifeline.on_blocked_message()
        if isinstance(error, Ignore) and Running.stale is not None:
            Running.stale.met(self.name)
        return super().on_failure(exc_info, *args, **kwargs)


def note_unfit(slot: str) -> None:
    """A slot could run none of the tasks that it claimed: log that, and have the worker take nothing for a while if it
    is not the first in a row."""
    if Running.fitness is None or Running.lifeline is None:
        return
    Running.fitness.ended_unfit()
    log.error(
        "%s of this worker could run none of the last %d tasks that it claimed (%s): see what this machine lacks",
        slot, LIMIT, Running.fitness.reason,
    )  # fmt: skip
    if not Running.fitness.may_take():
        log.error("slots that were replaced can run no task either: this worker takes nothing for a while")
        Running.lifeline.hold()


def _how_it_ended(error: BaseException) -> str:
    """How a pool process ended, by what the pool says; nothing if that is not known."""
    if isinstance(error, SystemExit) and error.code:  # raised in the process, which the pool hands on before it ends
        return f"ended with exit code {error.code}"
    found = _STATUS.search(str(error)) if isinstance(error, WorkerLostError) else None
    if found is None:
        return ""
    return f"was ended by {found['signal']}" if found["signal"] else f"ended with exit code {found['code']}"


class AttemptTask(Task):  # type: ignore[misc]
    """Base of all actors' tasks."""

    Request = AttemptRequest
    abstract = True
    acks_late = True
    ignore_result = True


def register(celery: Celery, app: Recovery) -> None:
    """Make a Celery task of each actor of `app`, and one that sweeps."""
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
            log.info("%s: its result is discarded, since the task was given back", slot.trying.last or decision_id)
            return
        except Exception as error:
            if is_of_servers(error):
                SAID.warning("%s: not done (%s); it is requeued", decision_id, error)
                return
            tell(decision_id, error)  # of what another program wrote: its deadline stands
            slot.host.was_not_done(decision_id, None, error)
            _end_if_unfit(slot)
            return
        except BaseException:
            if threading.current_thread() is threading.main_thread():
                raise  # the pool process ends, and its parent sees it
            # None of the actor's, which is its task's error. A thread's would be lost in the pool, and its message
            # never acknowledged.
            cut_off = slot.trying.last or decision_id
            log.exception("%s: the attempt was cut off; its deadline brings another", cut_off)
            return
        if result is Result.BLOCKED:
            raise Reject(f"{actor.name} is blocked", requeue=True)  # its decision stays queued under this pass
        if result is Result.STALE_MESSAGE:
            raise Ignore("stale message")  # which the parent process learns by this

    attempt.__module__ = actor.function.__module__
    return attempt


def _end_if_unfit(slot: Slot) -> None:
    """End this pool process if it can run no task, after it gave back those that it could not run. A thread can't be
    replaced: its worker notes it."""
    fitness = Running.fitness
    if fitness is None or not fitness.is_unfit:
        return
    try:
        slot.give_back_unrun(fitness.take_unrun(), RuntimeError(fitness.reason))
    except Exception as error:  # their deadlines stand
        log.warning("tasks that could not be run are not given back (%s); their deadlines requeue them", error)
    if isinstance(Running.board, SharedBoard):
        raise SystemExit(UNFIT)
    note_unfit(f"thread {threading.get_native_id()}")


def _slot(app: Recovery) -> Slot:
    """A place for attempts in this pool process or thread, which claims in its own name: two that got the same message
    must not take each other's claim for their own."""
    assert Running.lifeline is not None and Running.board is not None, "attempts run in workers, which have both"
    assert Running.fitness is not None, "attempts run in workers, which have it"
    worker = Running.lifeline.worker
    served = {name: app.actors[name] for name in worker.queues}
    thread = None if threading.current_thread() is threading.main_thread() else threading.get_native_id()
    name = holder(worker.id, os.getpid(), thread)
    return Slot(app.resources, app.applier, served, name, PoolHost(Running.board, Running.fitness), _batches(app))


def _batches(app: Recovery) -> Batches | None:
    """Those of this process; None where it is none of a worker's, which alone take messages."""
    if (intake := Channel.intake) is None:
        return None
    if Running.batches is None or Running.batches[0] != os.getpid():
        take = hints(app.resources.broker, intake, _takes_more)
        Running.batches = os.getpid(), Batches(app.resources, app.applier, take)
    return Running.batches[1]


def _takes_more() -> bool:
    """Whether slots of this process may take messages by themselves: not if it is about to end."""
    return (Running.board is None or Running.board.takes_more) and not OwnLifetime.lifetime.is_over


def _sweep(app: Recovery) -> Any:
    def sweep(repair: bool = False, every: float = 0.0) -> None:
        """Order a sweep if one is due."""
        from recovery.sweep import order_if_due

        if (operation := order_if_due(app.resources, every, repair=repair)) is not None:
            log.info("operation %d is ordered: a sweep", operation.id)

    return sweep


class GivenBack(BaseException):
    """What came back from an actor counts for nothing: its worker ends by force, and gives back what it runs."""


class PoolHost(Host):
    """A process of a worker, whose slots say on the board what they run."""

    def __init__(self, board: Board, fitness: Fitness) -> None:
        self._board, self._fitness = board, fitness

    @contextmanager
    def running(self, decision: Decision, timeout: float) -> Iterator[None]:
        """Raises GivenBack, before it or after, once the board is closed: what an attempt started is stopped then, and
        killed, so it may have failed for that, or come to a value that it has none of."""
        self._let_pass()
        OwnLifetime.lifetime.note_task()
        self._board.enter(decision, timeout)
        try:
            yield
        finally:
            self._board.leave()
        self._let_pass()

    @property
    def takes_more(self) -> bool:
        """No, once this pool process has reached the limit of its tasks or its memory."""
        return not OwnLifetime.lifetime.is_over

    def was_done(self) -> None:
        self._fitness.was_done()

    def was_not_done(self, decision_id: str, pass_key: str | None, error: Exception) -> None:
        self._fitness.was_not_done(decision_id, pass_key, error)

    def _let_pass(self) -> None:
        if self._board.closed:
            raise GivenBack

    def ends(self, error: BaseException) -> bool:
        """A process of a prefork pool that is told to end (SIGTERM from its parent) raises SystemExit in whatever it
        runs, which may turn into another error on its way."""
        return bool(terminate_handler_fired()) or super().ends(error)
