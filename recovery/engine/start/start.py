"""Start of a process (docs/records.md, 'The order of writes').

Saving the Process record alone acknowledges the start: what comes after it is restored by
START_NOT_REGISTERED, which runs `register` again. So once it is saved, nothing that goes wrong here is an error
to the caller, who would start the process a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from recovery import tracing
from recovery.engine.outages import through_outage
from recovery.engine.resources import Resources
from recovery.engine.start.admission import AbortReplaced, IfExists, check_start, gives_up, replace
from recovery.engine.start.registration import Register, after_saving, register_now
from recovery.errors import CustomIdTaken, DamagedRecord, InputError, ServerUnavailable, StoreError, StoreUnavailable
from recovery.limits import LONGEST
from recovery.records import Process, ProcessState, RetryOptions, given
from recovery.records.ids import new_process_id
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
    error: InputError | None = None
    """Why it was not started, where many were to be."""

    @property
    def was_there(self) -> bool:
        """Whether it had been started before."""
        return self.there is not None


def start_process(  # noqa: PLR0913
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
    pinned: bool = False,
    version: str | None = None,
    scheduled_by: str | None = None,
    retried_by_schedule: bool | None = None,
    labels: tuple[str, ...] = (),
    if_exists: IfExists | None = None,
    abort_replaced: AbortReplaced | None = None,
    beside: Register | None = None,
) -> Started:
    """Start a process of this type. `args` is the JSON text of `[positional, named]` arguments.

    With a custom id that a process of this type has already, that one, unless it is replaced as `if_exists` says
    (`custom_ids`; by default it never is). Raises CustomIdTaken where that one was started with other arguments, unless
    they may be `any_arguments`; and StartRefused where the type is disabled or, if it has `markers`, there is one of it
    and this `key`. One that is `scheduled_by` a schedule is run if that knows it. Of one that is `retried_by_schedule`
    its own end leaves a marker only if no next instance could do better. Its tasks are `pinned` to the `version` of
    the application that starts it, if that is known. It is registered before this returns, or by
    `beside`.
    """
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
            version=version,
            pinned=(pinned and version is not None) or None,
            scheduled_by=scheduled_by,
            retried_by_schedule=retried_by_schedule or None,
            trace=span.carried,
        )

        started = start_made(
            resources,
            wanted,
            process_timeout=process_timeout,
            any_arguments=any_arguments,
            markers=markers,
            if_exists=if_exists,
            abort_replaced=abort_replaced,
            beside=beside or partial(register_now, resources),
        )
        span.say(process_id=started.id, was_there=started.there is not None)
        return started


def start_made(
    resources: Resources,
    wanted: Process,
    *,
    process_timeout: float,
    any_arguments: bool,
    markers: bool,
    if_exists: IfExists | None,
    abort_replaced: AbortReplaced | None,
    beside: Register,
) -> Started:
    """The same of a process whose record is made."""
    first_look = min(wanted.idle_timeout, process_timeout or wanted.idle_timeout)

    def insert() -> Process:
        return _insert_if_allowed(resources, wanted, first_look, markers, if_exists, abort_replaced)

    return _start(resources, wanted, insert, any_arguments, beside)


def _start(
    resources: Resources, wanted: Process, insert: Callable[[], Process], any_arguments: bool, beside: Register
) -> Started:
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
        _register_as_well(resources, process, beside)
        return Started(process.id, process)
    after_saving([process], beside)
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


def _register_as_well(resources: Resources, process: Process, beside: Register) -> None:
    """Have a process registered that was there already, if whoever started it may have been cut off before that: mostly
    it was this program, which was not told that it had. It is started: nothing is raised."""
    started, patience = process.started_at, timedelta(seconds=2 * min(process.idle_timeout, LONGEST))
    young = started is not None and datetime.now(UTC) - started < patience
    if process.state is not ProcessState.RUNNING or process.epoch or not young:
        return  # others have seen to it
    try:
        whole = resources.store.processes.get_committed(process.id)
    except (StoreError, DamagedRecord) as error:
        log.debug("%s is not registered again (%s)", process.id, error)
        return
    if whole is not None:
        beside([whole])


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
