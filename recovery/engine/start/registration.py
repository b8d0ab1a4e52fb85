"""What follows a start that is acknowledged: the Task, Graph and Decision of its start task, and its message.

What comes after the Process record is restored by START_NOT_REGISTERED, which runs `register` again. So nothing that
goes wrong here is an error to whoever started the process, and nobody has to wait for it: the registrar does it in a
thread of its own, for as many at once as were started meanwhile. What could not be registered for a database that was
away is tried again for as long as the program lives, over connections of its own: one that was cut off may have
connections that are silent for ever. Others register it after its idle timeout, if the program is gone.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from multiprocessing.util import Finalize
from typing import Any

from recovery import metrics
from recovery.engine.end.fencing import withdraw_unwanted
from recovery.engine.resources import Resources
from recovery.engine.steps import first_decision, push
from recovery.errors import RecordInvalid, RecordTooLarge, StoreDenied, StoreError
from recovery.limits import LONGEST
from recovery.log_lines import Seldom
from recovery.records import Graph, Process, Task
from recovery.records.ids import new_pass, record_id
from recovery.retry.own_work import REGISTRATION
from recovery.store import PORTION_BYTES, Store, portions, queued
from recovery.store.views.overview import time_limit
from recovery.threads import ServiceThread

log = logging.getLogger(__name__)

TOGETHER = 1000
"""Processes that are registered at once."""
GATHERED_FOR = 0.015
"""Seconds that what is started on and on waits for more of it: some dozens cost little more than one to register, and
each round takes the processor from the starts. Whoever starts once in a while waits for nobody."""
AT_EXIT = 5.0
"""Seconds that a program waits at its end until all that it started is registered; mostly it is by then."""
TRY = 2.0
"""Seconds that one try takes at most: a database that is slow registers a thousand in a tenth of that."""
KEPT = 10_000
"""Processes that are tried again, at most: others register the rest after their idle timeouts."""


class Registrar:
    """Registers in a thread of its own what one process of a program starts. Any thread may add."""

    def __init__(self, resources: Resources) -> None:
        self._resources, self._pid = resources, os.getpid()
        self._changed, self._registering = threading.Condition(), threading.Lock()
        self._waiting: list[Process] = []
        self._failed: list[Process] = []
        """Those of them that were tried, and are to be tried again."""
        self._passes: dict[str, str] = {}
        """{process: the pass that it was tried under}, of those."""
        self._failures, self._try_at = 0, 0.0
        self._said = Seldom(log)
        self._again: Resources | None = None
        """With the connections of second tries."""
        self._thread = ServiceThread("registrar", self._step, apart=GATHERED_FOR)
        self._at_exit: Any = None

    def add(self, processes: Sequence[Process]) -> None:
        """Have these registered soon. They are saved. Does not raise."""
        with self._changed:
            self._waiting += processes
        if self._start_thread():
            self._thread.wake()
        else:
            self.flush()

    def flush(self) -> None:
        """Register in the calling thread what was added. When it returns, everything added before is registered, by
        whichever thread, as far as the database accepted it. Does not raise."""
        with self._registering:
            with self._changed:
                processes, self._waiting = self._waiting, []
                again, self._failed = self._failed, []
            self._passes |= dict.fromkeys((one.id for one in processes), new_pass())
            failed = [one for group in by_size(processes) for one in self._try(group)]
            if again and not failed:
                failed += [one for group in by_size(again) for one in self._try(group, again=True)]
            else:
                failed += again
            with self._changed:
                self._note_failed(failed)
                self._changed.notify_all()

    def _try(self, group: Sequence[Process], *, again: bool = False) -> Sequence[Process]:
        """Those that are to be tried again: after whatever may be another time, such as names that can't be looked up,
        a certificate that can't be read, or a system without threads. Nothing may end the thread that registers."""
        try:
            with time_limit(TRY):
                register_all(self._connected_anew() if again else self._resources, group, self._passes, again=again)
        except (StoreDenied, RecordInvalid, RecordTooLarge) as error:
            told = "%d processes are saved but not registered (%s), first %s: each is within its idle timeout"
            log.warning(told, len(group), error, group[0].id)
        except Exception as error:
            log.debug("not registered", exc_info=True)
            told = "%d processes are saved but not yet registered (%s: %s), first %s: tried again"
            self._said.warning(told, len(group), type(error).__name__, error, group[0].id)
            return group
        return ()

    def _connected_anew(self) -> Resources:
        if self._again is None:
            self._again = replace(self._resources, store=Store(self._resources.settings, within=TRY))
        return self._again

    def _note_failed(self, failed: Sequence[Process]) -> None:
        self._failed = [*failed, *self._failed][:KEPT]
        self._passes = {one.id: self._passes[one.id] for one in self._failed}
        self._failures = self._failures + 1 if failed else 0
        self._try_at = time.monotonic() + REGISTRATION.delay(self._failures)

    def wait(self, seconds: float) -> bool:
        """Wait until the thread has registered everything that was added. Return whether it has, in time."""
        if os.getpid() != self._pid:  # a fork, at its end: what was added is its parent's to register
            return True
        with self._changed:
            return self._changed.wait_for(
                lambda: not (self._waiting or self._failed or self._registering.locked()), seconds
            )

    def _start_thread(self) -> bool:
        if not self._thread.begin():
            return False
        if self._at_exit is None:
            # Not `atexit`, which a process of multiprocessing does not ask as it ends.
            self._at_exit = Finalize(None, self.wait, args=(AT_EXIT,), exitpriority=0)
        return True

    def _step(self) -> float | None:
        if self._waiting or time.monotonic() >= self._try_at:
            self.flush()
        return max(0.0, self._try_at - time.monotonic()) if self._failed else None


def by_size(processes: Sequence[Process]) -> Iterator[list[Process]]:
    """These, as many at a time as are written at once: their arguments may be large."""
    by_id = {one.id: one for one in processes}
    for ids in portions({one.id: len(one.args) for one in processes}, PORTION_BYTES, TOGETHER):
        yield [by_id[key] for key in ids]


Register = Callable[[Sequence[Process]], object]


def register(
    resources: Resources,
    started: Mapping[str, datetime],
    processes: Sequence[Process],
    passes: Mapping[str, str] | None = None,
    *,
    again: bool = False,
) -> int:
    """Make the Task, Graph and Decision of the start tasks of processes, as far as they are missing, and push their
    messages. {process: the database's time at its start, or now}. How many records were missing. Raises StoreError.

    {process: the pass that its start task is queued under}; without that, a new one. `again` after a try under the same
    passes whose answer was lost, perhaps: what is there gets a message as well. Whether it is queued, and under that
    pass, a client may not read; a message that comes second, or late, is discarded as stale.

    The Decisions come last, queued already: they are what can be claimed, and by then there are graphs to apply their
    results to. Before their messages it is looked whether the processes are still there (`fencing`).
    """
    store = resources.store
    tasks = [_task(process) for process in processes]
    made = store.tasks.insert(tasks)
    made += len(store.graphs.insert([_graph(process, started[process.id]) for process in processes]))
    if passes is None:
        passes = dict.fromkeys((process.id for process in processes), new_pass())
    decisions = [
        first_decision(
            task,
            trace=process.trace,
            pass_key=passes[process.id],
            queued_at=started[process.id],
            pinned_to=process.version if process.pinned else None,
        )
        for task, process in zip(tasks, processes, strict=True)
    ]
    timeouts = store.preferences.task_timeouts()
    new = store.decisions.insert_queued(decisions, resources.settings.message_timeout, timeouts)
    unverified = {one.id: one for one in decisions if again or one.id in new}
    if unverified:
        unwanted = withdraw_unwanted(resources, {key: one.epoch for key, one in unverified.items()})
        push(resources, [queued(one) for key, one in unverified.items() if key not in unwanted])
    return made + len(new)


def register_all(
    resources: Resources, processes: Sequence[Process], passes: Mapping[str, str] | None = None, *, again: bool = False
) -> None:
    """The same of processes that were saved not long ago, as far as they tell when. Raises StoreError."""
    started = {one.id: one.started_at for one in processes if one.started_at is not None}
    register(resources, started, [one for one in processes if one.id in started], passes, again=again)


def register_now(resources: Resources, processes: Sequence[Process]) -> None:
    """The same of processes that were just saved. Does not raise: their deadlines stand."""
    try:
        register_all(resources, processes)
    except StoreError as error:
        told = "%d processes are saved but not yet registered (%s), first %s: each is within its idle timeout"
        log.warning(told, len(processes), error, processes[0].id)


def after_saving(processes: Sequence[Process], register: Register) -> None:
    """Count processes of one type whose start is acknowledged, and have them registered. Does not raise: whoever is
    told of an error starts them a second time."""
    if not processes:
        return
    kind = processes[0].type
    try:
        metrics.PROCESSES_STARTED.labels(kind).inc(len(processes))
        register(processes)
    except Exception:
        log.exception("%d processes of type %s are started; what follows failed", len(processes), kind)


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
