"""What follows a start that is acknowledged: the Task, Graph and Decision of its start task, and its message.

What comes after the Process record is restored by START_NOT_REGISTERED, which runs `register` again. So nothing that
goes wrong here is an error to whoever started the process, and nobody has to wait for it: `Registrar` does it in a
thread of its own, for as many at once as were started meanwhile.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from recovery.engine.lifecycle.fencing import withdraw_unwanted
from recovery.engine.lifecycle.steps import first_decision, push
from recovery.engine.resources import Resources
from recovery.errors import StoreError
from recovery.limits import LONGEST
from recovery.records import Graph, Process, Task
from recovery.records.ids import new_pass, record_id
from recovery.store import PORTION_BYTES, portions

log = logging.getLogger(__name__)

TOGETHER = 1000
"""Processes that are saved, or registered, at once."""
GATHERED_FOR = 0.01
"""Seconds that what is started on and on waits for more of it: some dozens cost little more than one to register, and
each round takes the processor from the starts. Whoever starts once in a while waits for nobody."""
AT_EXIT = 5.0
"""Seconds that a program waits at its end until all that it started is registered; mostly it is by then."""

Register = Callable[[Sequence[Process]], object]


def register(resources: Resources, started: Mapping[str, datetime], processes: Sequence[Process]) -> int:
    """Make the Task, Graph and Decision of the start tasks of processes, as far as they are missing, and push their
    messages. {process: the database's time at its start, or now}. How many records were missing. Raises StoreError.

    The Decisions come last, queued already: they are what can be claimed, and by then there are graphs to apply their
    results to. Before their messages it is looked whether the processes are still there (`fencing`).
    """
    store = resources.store
    tasks = [_task(process) for process in processes]
    made = store.tasks.insert(tasks)
    made += len(store.graphs.insert([_graph(process, started[process.id]) for process in processes]))
    decisions = [
        first_decision(task, trace=process.trace).evolve(queued_at=started[process.id])
        for task, process in zip(tasks, processes, strict=True)
    ]
    timeouts = store.preferences.task_timeouts()
    queued = store.decisions.insert_queued(decisions, new_pass(), resources.settings.message_timeout, timeouts)
    if queued:
        new = {one.id for one in queued}
        unwanted = withdraw_unwanted(resources, {one.id: one.epoch for one in decisions if one.id in new})
        queued = [one for one in queued if one.id not in unwanted]
    push(resources, queued)
    return made + len(queued)


def register_now(resources: Resources, processes: Sequence[Process]) -> None:
    """The same of processes that were just saved. Does not raise: their deadlines stand."""
    started = {one.id: one.started_at for one in processes if one.started_at is not None}
    try:
        register(resources, started, [one for one in processes if one.id in started])
    except StoreError as error:
        told = "%d processes are saved but not yet registered (%s), first %s: each is within its idle timeout"
        log.warning(told, len(processes), error, processes[0].id)


class Registrar:
    """Registers in a thread of its own what one process of a program starts. Any thread may add."""

    def __init__(self, resources: Resources) -> None:
        self._resources, self._pid = resources, os.getpid()
        self._changed, self._registering = threading.Condition(), threading.Lock()
        self._waiting: list[Process] = []
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, processes: Sequence[Process]) -> None:
        """Have these registered soon. They are saved."""
        with self._changed:
            self._waiting += processes
            if self._thread is None:
                self._start_thread()
            self._changed.notify_all()

    def flush(self) -> None:
        """Register in the calling thread what was added. When it returns, everything added before is registered, by
        whichever thread, as far as the database accepted it. Does not raise."""
        with self._registering:
            with self._changed:
                processes, self._waiting = self._waiting, []
            for group in by_size(processes):
                try:
                    register_now(self._resources, group)
                except Exception:  # nothing may end the thread that registers
                    log.exception("%d processes are saved but not yet registered", len(group))
        with self._changed:
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until the thread has registered everything that was added. Return whether it has, in time."""
        if os.getpid() != self._pid:  # a fork, at its end: what was added is its parent's to register
            return True
        self._hurry.set()
        with self._changed:
            done = self._changed.wait_for(lambda: not (self._waiting or self._registering.locked()), seconds)
        self._hurry.clear()
        return done

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._register_always, name="registrar", daemon=True)
        self._thread.start()
        atexit.register(self.wait, AT_EXIT)

    def _register_always(self) -> None:
        more_came = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                gather = more_came and len(self._waiting) < TOGETHER
            if gather:
                self._hurry.wait(GATHERED_FOR)
            self.flush()
            more_came = bool(self._waiting)


def by_size(processes: Sequence[Process]) -> Iterator[list[Process]]:
    """These, as many at a time as are written at once: their arguments may be large."""
    by_id = {one.id: one for one in processes}
    for ids in portions({one.id: len(one.args) for one in processes}, PORTION_BYTES, TOGETHER):
        yield [by_id[key] for key in ids]


def _task(process: Process) -> Task:
    return Task(
        id=record_id(process.id, process.start_task),
        actor=process.type,
        args=process.args,
        epoch=process.epoch,
        retry=process.retry,
        context=process.context,
    )


def _graph(process: Process, now: datetime) -> Graph:
    return Graph(
        id=process.id,
        epoch=process.epoch,
        not_finished={process.start_task: now},
        idle_timeout=process.idle_timeout,
        touched_at=now,
        recovery_time=now + timedelta(seconds=min(process.idle_timeout, LONGEST)),
    )
