"""Starts processes (docs/records.md, 'The order of writes').

Saving the Process record alone acknowledges the start. If a later step fails, START_NOT_REGISTERED runs `register`
again. So once the record is saved, no failure here is reported to the caller, who would start the process a second
time.

Many processes are saved a thousand at a time, and acknowledged like a single one. A process that can't be saved with
the others, because another process has its custom id, is started on its own, with the usual rules for custom ids.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from recovery import tracing
from recovery.engine.outages import through_outage
from recovery.engine.resources import Resources
from recovery.engine.start.admission import AbortReplaced, IfExists, check_start, checking, gives_up, replace
from recovery.engine.start.registration import Register, after_saving, by_size, register_now
from recovery.errors import CustomIdTaken, DamagedRecord, InputError, ServerUnavailable, StoreError, StoreUnavailable
from recovery.limits import LONGEST
from recovery.records import Process, ProcessState, ProcessTypePreferences, given
from recovery.records.ids import new_process_id
from recovery.records.preferences import SAME_VERSION
from recovery.records.values import is_same

log = logging.getLogger(__name__)

CONFIRMED_TIMEOUT = 10.0
"""Seconds for which a start is retried if the connection is lost: long enough for a failover, not for an outage. The
caller knows best what to do in an outage."""
NOT_STARTED = "not started: an earlier start failed (ordered=True)"


@dataclass(frozen=True, slots=True)
class Started:
    """A process that was started, or that existed already."""

    id: str
    was_there: bool = False
    """Whether the process existed before this start."""
    error: InputError | None = None
    """Why the process was not started; only set if several were to be started."""


@dataclass(frozen=True, slots=True)
class Starts:
    """Starts processes of one type, with the settings that apply to them."""

    resources: Resources
    kind: ProcessTypePreferences
    register: Register | None = None
    """Registers saved processes in the background. None: each process is registered before its start returns."""
    any_arguments: bool = False
    """Whether the process that already has the custom id may have been started with other arguments."""
    if_exists: IfExists | None = None
    """What happens to the process that already has the custom id (`admission`). None: it is never replaced."""
    abort_replaced: AbortReplaced | None = None
    """Aborts a broken process that is replaced. None: no process is replaced."""
    met: Callable[[Process], object] | None = None
    """Called with the brief record of the process that already has the custom id, as it was read."""

    def process(self, args: str, *, version: str | None = None, **fields: Any) -> Process:
        """Return a process of this type that is to be started.

        Args:
            args: The JSON text of `[positional, named]` arguments.
            version: The version of the application that starts it, if known. Its tasks are pinned to this version if
                its type says so.
            fields: Further fields of the record.
        """
        pinned = self.kind.versions == SAME_VERSION and version is not None
        return Process(
            id=new_process_id(),
            type=self.kind.id,
            args=args,
            idle_timeout=self.kind.idle_timeout,
            version=version,
            pinned=pinned or None,
            **fields,
        )

    def start(self, wanted: Process) -> Started:
        """Start a process, or return the process of this type that already has its custom id, unless that is replaced.

        Raises:
            CustomIdTaken: The process that has the custom id was started with other arguments.
            StartRefused: The type is disabled, or it has markers and a marker of its key exists.
            ServerUnavailable: MongoDB did not confirm the start.
        """
        with tracing.starting(wanted.type) as span:
            started = self._start(wanted.evolve(trace=span.carried))
            span.say(process_id=started.id, was_there=started.was_there)
            return started

    def start_many(self, wanted: Sequence[Process], *, ordered: bool = False) -> list[Started]:
        """Start processes, and return the results in the same order.

        Args:
            wanted: The processes.
            ordered: Whether a process that can't be started keeps all later ones from being started.

        Raises:
            ServerUnavailable: MongoDB did not confirm all starts.
        """
        if tracing.is_on():
            wanted = [self._traced(process) for process in wanted]
        return self._start_in_order(wanted) if ordered else self._start_all(wanted)

    @property
    def _first_look(self) -> float:
        """Return the seconds until the process's first deadline."""
        return min(self.kind.idle_timeout, self.kind.process_timeout or self.kind.idle_timeout)

    @property
    def _is_refusable(self) -> bool:
        return self.kind.keeps_markers or self.resources.store.preferences.disabled(self.kind.id) is not None

    def _traced(self, wanted: Process) -> Process:
        with tracing.starting(wanted.type) as span:
            span.say(process_id=wanted.id)
            return wanted.evolve(trace=span.carried)

    def _register(self, processes: Sequence[Process]) -> object:
        return (self.register or partial(register_now, self.resources))(processes)

    def _start(self, wanted: Process) -> Started:
        try:
            process = through_outage(self.resources, lambda: self._insert(wanted), CONFIRMED_TIMEOUT, wanted.id)
        except StoreUnavailable as error:
            raise ServerUnavailable(
                f"process {wanted.id} of type {wanted.type} may not have been started: MongoDB did not confirm it "
                f"({error}). Start it again with a custom_id, so that it is started at most once"
            ) from error
        if process.id != wanted.id:
            if not self.any_arguments:
                _check_arguments(self.resources, process, wanted)
            _register_as_well(self.resources, process, self._register)
            if self.met is not None:
                self.met(process)
            return Started(process.id, was_there=True)
        after_saving([process], self._register)
        return Started(process.id)

    def _insert(self, wanted: Process) -> Process:
        processes, refusable = self.resources.store.processes, self._is_refusable
        if refusable:
            check_start(self.resources, wanted, self.kind.keeps_markers)
        process = processes.insert(wanted, self._first_look)
        if process.id == wanted.id or self.abort_replaced is None or not gives_up(process, self.if_exists):
            return process
        if refusable:
            check_start(self.resources, wanted, self.kind.keeps_markers, replacing=True)
        replace(self.resources, process, wanted, self.abort_replaced)
        return processes.insert(wanted, self._first_look)

    def _start_or_say_why_not(self, wanted: Process) -> Started:
        try:
            return self._start(wanted)
        except InputError as error:
            return Started(wanted.id, error=error)

    def _start_all(self, wanted: Sequence[Process]) -> list[Started]:
        done: list[Started] = []
        for batch in by_size(wanted):
            refused = self._refused(batch)
            saved = self._save([process for process in batch if process.id not in refused], done, ordered=False)
            for process in batch:
                if process.id in saved:
                    done.append(Started(process.id))
                elif process.id in refused:
                    done.append(Started(process.id, error=refused[process.id]))
                else:
                    done.append(self._start_or_say_why_not(process))
        return done

    def _start_in_order(self, wanted: Sequence[Process]) -> list[Started]:
        done: list[Started] = []
        for batch in by_size(wanted):
            remaining = list(batch)
            while remaining:
                refused = self._refused(remaining, limit=1)
                allowed = next(
                    (number for number, process in enumerate(remaining) if process.id in refused), len(remaining)
                )
                saved = self._save(remaining[:allowed], done, ordered=True)
                done += [Started(process.id) for process in remaining[: len(saved)]]
                if stopped := remaining[len(saved) : len(saved) + 1]:
                    # Stopped by the refusal, or earlier by a process that has the custom id.
                    error = refused.get(stopped[0].id)
                    done.append(
                        Started(stopped[0].id, error=error) if error else self._start_or_say_why_not(stopped[0])
                    )
                    if done[-1].error is not None:
                        return done + [
                            Started(process.id, error=InputError(NOT_STARTED)) for process in wanted[len(done) :]
                        ]
                remaining = remaining[len(saved) + 1 :]
        return done

    def _refused(self, batch: Sequence[Process], limit: int | None = None) -> dict[str, InputError]:
        """Return why processes must not be started, by process id; at most `limit` of them.

        This is checked for each batch anew. Many starts take long, and an operator may disable the type meanwhile.
        """
        refused: dict[str, InputError] = {}
        if not self._is_refusable:
            return refused
        check = checking(self.resources, self.kind.keeps_markers)
        for process in batch:
            try:
                check(process)
            except InputError as error:
                refused[process.id] = error
                if len(refused) == limit:
                    break
        return refused

    def _save(self, processes: Sequence[Process], earlier: Sequence[Started], *, ordered: bool) -> set[str]:
        """Save the processes whose custom ids are free, and have them registered. Return their ids.

        With `ordered`, stop at the first process whose custom id is taken.
        """
        if not processes:
            return set()
        store = self.resources.store
        try:
            saved = through_outage(
                self.resources,
                lambda: store.processes.insert_many(processes, self._first_look, store.now(), ordered=ordered),
                CONFIRMED_TIMEOUT,
                processes[0].id,
            )
        except StoreUnavailable as error:
            started_count = sum(result.error is None for result in earlier)
            raise ServerUnavailable(
                f"{started_count:,} processes of type {processes[0].type} are started, and later ones may not "
                f"have been: MongoDB did not confirm them ({error}). Start them again with custom_ids, so that each is "
                "started at most once"
            ) from error
        after_saving(saved, self._register)
        return {process.id for process in saved}


def _register_as_well(resources: Resources, process: Process, register: Register) -> None:
    """Register a process that already existed, in case its start was cut off before its registration. Does not raise.

    Usually it was this program that started it, but got no answer.
    """
    started, registration_period = process.started_at, timedelta(seconds=2 * min(process.idle_timeout, LONGEST))
    is_recent = started is not None and datetime.now(UTC) - started < registration_period
    if process.state is not ProcessState.RUNNING or process.epoch or not is_recent:
        return  # it is registered by now
    try:
        full = resources.store.processes.get_committed(process.id)
    except (StoreError, DamagedRecord) as error:
        log.debug("%s is not registered again (%s)", process.id, error)
        return
    if full is not None:
        register([full])


def _check_arguments(resources: Resources, process: Process, wanted: Process) -> None:
    """Raise CustomIdTaken unless the process that has the custom id was started with the same arguments.

    Arguments never change, so they may be read later than the rest of the record.
    """
    try:
        args = through_outage(
            resources, lambda: resources.store.processes.arguments(process.id), CONFIRMED_TIMEOUT, process.id
        )
        if args is None or is_same(args, wanted.args):  # None: the process was removed since
            return
        difference = "other arguments"
    except DamagedRecord:
        difference = "arguments that can't be read any more"
    message = f"process {process.id} of type {wanted.type} has the custom_id {given.shown(wanted.custom_id)} already"
    advice = "give this one another, or ask for the process that is there by any_arguments=True (--any-arguments)"
    raise CustomIdTaken(f"{message}, and was started with {difference}; {advice}", process.id)
