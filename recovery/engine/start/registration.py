"""Registers started processes: creates the Task, Graph and Decision of the start task, and pushes its message.

START_NOT_REGISTERED repeats a registration that did not happen, by calling `register` again. So an error here is no
error of the start, and no caller has to wait for the registration. The registrar runs in its own thread and registers
all processes that were started meanwhile at once. If the database is away, it retries for as long as the program lives,
over separate connections, because connections that were cut off may stay silent forever. If the program is gone, other
workers register its processes after their idle timeouts.
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
"""Maximum number of processes that are registered at once."""
GATHERED_FOR = 0.015
"""Minimum seconds between two rounds while processes are started in quick succession. Dozens cost little more than
one to register, and each round takes processor time from the starts. The first process after a pause is registered
at once."""
AT_EXIT = 5.0
"""Maximum seconds that a program waits at its end for its started processes to be registered. Usually they are by
then."""
TRY = 2.0
"""Maximum seconds of one try. Even a slow database registers a thousand processes in a tenth of this."""
KEPT = 10_000
"""Maximum number of processes that are retried. Other workers register the rest after their idle timeouts."""


class Registrar:
    """Registers the processes that one process of a program starts, in its own thread. Thread-safe."""

    def __init__(self, resources: Resources) -> None:
        self._resources, self._pid = resources, os.getpid()
        self._changed, self._registering = threading.Condition(), threading.Lock()
        self._waiting: list[Process] = []
        self._failed: list[Process] = []
        """Processes that were tried and must be retried."""
        self._passes: dict[str, str] = {}
        """The pass of the first try, by process id, for the processes to retry."""
        self._failures, self._try_at = 0, 0.0
        self._said = Seldom(log)
        self._again: Resources | None = None
        """Resources with separate connections, for retries."""
        self._thread = ServiceThread("registrar", self._step, apart=GATHERED_FOR)
        self._at_exit: Any = None

    def add(self, processes: Sequence[Process]) -> None:
        """Have saved processes registered soon. Does not raise."""
        with self._changed:
            self._waiting += processes
        if self._start_thread():
            self._thread.wake()
        else:
            self.flush()

    def flush(self) -> None:
        """Register all added processes in the calling thread. Does not raise.

        On return every process that was added before is registered, by this thread or another, as far as the database
        accepted it.
        """
        with self._registering:
            with self._changed:
                processes, self._waiting = self._waiting, []
                to_retry, self._failed = self._failed, []
            self._passes |= dict.fromkeys((process.id for process in processes), new_pass())
            failed = [process for group in by_size(processes) for process in self._try(group)]
            if to_retry and not failed:
                failed += [process for group in by_size(to_retry) for process in self._try(group, again=True)]
            else:
                failed += to_retry
            with self._changed:
                self._note_failed(failed)
                self._changed.notify_all()

    def _try(self, group: Sequence[Process], *, again: bool = False) -> Sequence[Process]:
        """Register a group. Return the processes to retry.

        A group is retried after any error that may pass, such as a failed name lookup, an unreadable certificate, or a
        system without threads. No error may end the thread.
        """
        try:
            with time_limit(TRY):
                register_all(self._connected_anew() if again else self._resources, group, self._passes, again=again)
        except (StoreDenied, RecordInvalid, RecordTooLarge) as error:
            message = (
                "%d processes are saved but not registered (%s), first %s: each is registered within its idle timeout"
            )
            log.warning(message, len(group), error, group[0].id)
        except Exception as error:
            log.debug("not registered", exc_info=True)
            message = "%d processes are saved but not yet registered (%s: %s), first %s: retrying"
            self._said.warning(message, len(group), type(error).__name__, error, group[0].id)
            return group
        return ()

    def _connected_anew(self) -> Resources:
        if self._again is None:
            self._again = replace(self._resources, store=Store(self._resources.settings, within=TRY))
        return self._again

    def _note_failed(self, failed: Sequence[Process]) -> None:
        self._failed = [*failed, *self._failed][:KEPT]
        self._passes = {process.id: self._passes[process.id] for process in self._failed}
        self._failures = self._failures + 1 if failed else 0
        self._try_at = time.monotonic() + REGISTRATION.delay(self._failures)

    def wait(self, seconds: float) -> bool:
        """Wait at most this many seconds until the thread has registered every added process. Return whether it has."""
        if os.getpid() != self._pid:  # a fork that ends: its parent registers what was added
            return True
        with self._changed:
            return self._changed.wait_for(
                lambda: not (self._waiting or self._failed or self._registering.locked()), seconds
            )

    def _start_thread(self) -> bool:
        if not self._thread.begin():
            return False
        if self._at_exit is None:
            # Not `atexit`, because a process of multiprocessing does not run its handlers.
            self._at_exit = Finalize(None, self.wait, args=(AT_EXIT,), exitpriority=0)
        return True

    def _step(self) -> float | None:
        if self._waiting or time.monotonic() >= self._try_at:
            self.flush()
        return max(0.0, self._try_at - time.monotonic()) if self._failed else None


def by_size(processes: Sequence[Process]) -> Iterator[list[Process]]:
    """Yield the processes in groups that are written at once. Groups are limited in bytes because arguments may be
    large."""
    by_id = {process.id: process for process in processes}
    for ids in portions({process.id: len(process.args) for process in processes}, PORTION_BYTES, TOGETHER):
        yield [by_id[key] for key in ids]


Register = Callable[[Sequence[Process]], object]
"""Registers these saved processes, now or later."""


def register(
    resources: Resources,
    started: Mapping[str, datetime],
    processes: Sequence[Process],
    passes: Mapping[str, str] | None = None,
    *,
    again: bool = False,
) -> int:
    """Create the missing Task, Graph and Decision of the start tasks of processes, and push their messages.

    The Decisions come last and are already queued: they can be claimed, and their graphs exist by then. Before the
    messages are pushed, `fencing` checks that the processes still exist.

    Args:
        resources: Connections.
        started: The database's time at the start of each process, or now, by process id.
        processes: The processes.
        passes: The pass under which each start task is queued, by process id. By default a new one.
        again: Whether an earlier try under the same passes may have succeeded without an answer. Then existing
            decisions get a message too, because a client may not read whether they are queued under that pass. A second
            or late message is discarded as stale.

    Returns:
        The number of records that were missing.

    Raises:
        StoreError: MongoDB did not accept the records.
    """
    store = resources.store
    tasks = [_task(process) for process in processes]
    missing = store.tasks.insert(tasks)
    missing += len(store.graphs.insert([_graph(process, started[process.id]) for process in processes]))
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
    unverified = {decision.id: decision for decision in decisions if again or decision.id in new}
    if unverified:
        unwanted = withdraw_unwanted(resources, {key: decision.epoch for key, decision in unverified.items()})
        push(resources, [queued(decision) for key, decision in unverified.items() if key not in unwanted])
    return missing + len(new)


def register_all(
    resources: Resources, processes: Sequence[Process], passes: Mapping[str, str] | None = None, *, again: bool = False
) -> None:
    """Call `register` for recently saved processes whose records hold the time of their start. Raise StoreError as it
    does."""
    started = {process.id: process.started_at for process in processes if process.started_at is not None}
    register(resources, started, [process for process in processes if process.id in started], passes, again=again)


def register_now(resources: Resources, processes: Sequence[Process]) -> None:
    """Register processes that were just saved. Does not raise: their deadlines stand."""
    try:
        register_all(resources, processes)
    except StoreError as error:
        message = (
            "%d processes are saved but not yet registered (%s), first %s: each is registered within its idle timeout"
        )
        log.warning(message, len(processes), error, processes[0].id)


def after_saving(processes: Sequence[Process], register: Register) -> None:
    """Count processes of one type whose start is acknowledged, and have them registered.

    Does not raise, because a caller who gets an error starts the processes a second time.
    """
    if not processes:
        return
    process_type = processes[0].type
    try:
        metrics.PROCESSES_STARTED.labels(process_type).inc(len(processes))
        register(processes)
    except Exception:
        log.exception("%d processes of type %s are started, but a later step failed", len(processes), process_type)


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
