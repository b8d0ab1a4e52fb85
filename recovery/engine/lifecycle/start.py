"""Start of a process (docs/records.md, 'The order of writes').

Saving the Process record alone acknowledges the start: what comes after it is restored by
START_NOT_REGISTERED, which runs `register` again. So once it is saved, nothing that goes wrong here is an error
to the caller, who would start the process a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery import metrics, tracing
from recovery.engine.lifecycle.custom_ids import AbortReplaced, IfExists, gives_up, replace
from recovery.engine.lifecycle.refusal import check_start
from recovery.engine.lifecycle.steps import first_decision, push
from recovery.engine.outages import through_outage
from recovery.engine.resources import Resources
from recovery.errors import CustomIdTaken, DamagedRecord, ServerUnavailable, StoreError, StoreUnavailable
from recovery.limits import LONGEST
from recovery.records import Graph, Process, RetryOptions, Task, given
from recovery.records.ids import new_pass, new_process_id, record_id
from recovery.records.values import is_same

log = logging.getLogger(__name__)

CONFIRMED_TIMEOUT = 10.0
"""Seconds in which a start is tried again if the connection was lost: a failover, not an outage. Who asks knows best
what to do about that."""


@dataclass(frozen=True, slots=True)
class Started:
    """A process that was started, or was there already."""

    id: str
    there: Process | None = None
    """The one that was there, briefly, as it was then."""


def start(
    resources: Resources,
    process_type: str,
    args: str,
    *,
    custom_id: str | None,
    idle_timeout: float,
    process_timeout: float = 0.0,
    any_arguments: bool = False,
    retry: RetryOptions | None = None,
    context: str | None = None,
    key: str | None = None,
    markers: bool = False,
    retried_by_schedule: bool | None = None,
    labels: tuple[str, ...] = (),
    if_exists: IfExists | None = None,
    abort_replaced: AbortReplaced | None = None,
) -> Started:
    """Start a process of this type. `args` is the JSON text of `[positional, named]` arguments.

    With a custom id that a process of this type has already, that one, unless it is replaced as `if_exists` says
    (`custom_ids`; by default it never is). Raises CustomIdTaken where that one was started with other arguments, unless
    they may be `any_arguments`; and StartRefused
    where the type is disabled or, if it has `markers`, there is one of it and this `key`. Of one that is
    `retried_by_schedule` its own end leaves a marker only if no next instance could do better.
    """
    first_look = min(idle_timeout, process_timeout or idle_timeout)
    with tracing.starting(process_type) as span:
        wanted = Process(
            id=new_process_id(),
            type=process_type,
            args=args,
            custom_id=custom_id,
            idle_timeout=idle_timeout,
            retry=retry,
            context=context,
            key=key,
            labels=labels,
            retried_by_schedule=retried_by_schedule or None,
            trace=span.carried,
        )

        def insert() -> Process:
            return _insert_if_allowed(resources, wanted, first_look, markers, if_exists, abort_replaced)

        started = _start(resources, wanted, insert, any_arguments)
        span.say(process_id=started.id, was_there=started.there is not None)
        return started


def _start(resources: Resources, wanted: Process, insert: Callable[[], Process], any_arguments: bool) -> Started:
    try:
        process = through_outage(resources, insert, CONFIRMED_TIMEOUT, wanted.id)
    except StoreUnavailable as error:
        raise ServerUnavailable(
            f"process {wanted.id} of type {wanted.type} may not have been started: MongoDB did not confirm it "
            f"({error}). Start it again with a custom_id, which starts it once at the most"
        ) from error
    if process.id != wanted.id:
        if not any_arguments:
            _check_arguments(resources, process, wanted)
        return Started(process.id, process)
    metrics.PROCESSES_STARTED.labels(wanted.type).inc()
    try:
        assert process.started_at is not None
        register(resources, process, process.started_at)
    except StoreError as error:
        told = "process %s is saved but not yet registered (%s): it is registered within its idle timeout of %g s"
        log.warning(told, process.id, error, wanted.idle_timeout)
    return Started(process.id)


def _insert_if_allowed(
    resources: Resources,
    wanted: Process,
    first_look: float,
    markers: bool,
    if_exists: IfExists | None,
    abort_replaced: AbortReplaced | None,
) -> Process:
    refusable = markers or resources.store.preferences.disabled(wanted.type) is not None
    if refusable:
        check_start(resources, wanted, markers)
    process = resources.store.processes.insert(wanted, first_look)
    if process.id == wanted.id or abort_replaced is None or not gives_up(process, if_exists):
        return process
    if refusable:
        check_start(resources, wanted, markers, replacing=True)
    replace(resources, process, wanted, abort_replaced)
    return resources.store.processes.insert(wanted, first_look)


def _check_arguments(resources: Resources, process: Process, wanted: Process) -> None:
    """Raise CustomIdTaken unless the process that has the custom id was started with the same arguments. They never
    change, so they may be read after it was seen that it is there."""
    try:
        args = through_outage(
            resources, lambda: resources.store.processes.arguments(process.id), CONFIRMED_TIMEOUT, process.id
        )
        if args is None or is_same(args, wanted.args):  # None: somebody has removed it since
            return
        which = "other arguments"
    except DamagedRecord:
        which = "arguments that can't be read any more"
    told = f"process {process.id} of type {wanted.type} has the custom_id {given.shown(wanted.custom_id)} already"
    advice = "give this one another, or ask for the process that is there by any_arguments=True (--any-arguments)"
    raise CustomIdTaken(f"{told}, and was started with {which}; {advice}", process.id)


def register(resources: Resources, process: Process, now: datetime) -> int:
    """Make the Task, Graph and Decision of the start task, as far as they are missing, and push its message.

    The Decision comes last, queued already: it is what can be claimed, and by then there is a graph to apply its
    result to. `now` is the database's time. How many of the three were missing.
    """
    store, key = resources.store, record_id(process.id, process.start_task)
    task = Task(
        id=key,
        actor=process.type,
        args=process.args,
        epoch=process.epoch,
        retry=process.retry,
        context=process.context,
    )
    made = store.tasks.insert([task])
    graph = Graph(
        id=process.id,
        epoch=process.epoch,
        not_finished={process.start_task: now},
        idle_timeout=process.idle_timeout,
        touched_at=now,
        recovery_time=now + timedelta(seconds=min(process.idle_timeout, LONGEST)),
    )
    made += len(store.graphs.insert([graph]))
    task_timeout = store.preferences.task_timeouts().get(task.actor)
    message_timeout = resources.settings.message_timeout
    queued = store.decisions.insert_queued(
        first_decision(task, trace=process.trace), new_pass(), now, message_timeout, task_timeout
    )
    if queued is not None:
        push(resources, [queued])
    return made + (queued is not None)
