"""Start of processes (docs/records.md, 'The order of writes').

Saving the Process record alone acknowledges the start: what comes after it is restored by
START_NOT_REGISTERED, which runs `register` again. So once it is saved, nothing that goes wrong here is an error
to the caller, who would start the process a second time.

Many are saved a thousand at once, and acknowledged as one is. One that can't be saved with others, since another
process has its custom id, is started by itself, which says what becomes of it.
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
"""Seconds in which a start is tried again if the connection was lost: a failover, not an outage. Who asks knows best
what to do about that."""
NOT_STARTED = "not started: one before it could not be, and ordered=True says that none is then"


@dataclass(frozen=True, slots=True)
class Started:
    """A process that was started, or was there already."""

    id: str
    was_there: bool = False
    """Whether it had been started before."""
    error: InputError | None = None
    """Why it was not started, where many were to be."""


@dataclass(frozen=True, slots=True)
class Starts:
    """Starts of processes of one type, and what holds for them."""

    resources: Resources
    kind: ProcessTypePreferences
    register: Register | None = None
    """Registers what is saved, beside whoever starts it. None: it is registered before a start returns."""
    any_arguments: bool = False
    """Whether a process that has the custom id already may have been started with other arguments."""
    if_exists: IfExists | None = None
    """What becomes of the process that has the custom id already (`admission`). None: it is never replaced."""
    abort_replaced: AbortReplaced | None = None
    met: Callable[[Process], object] | None = None
    """Called with the process that has the custom id already, briefly, as it was then."""

    def process(self, args: str, *, version: str | None = None, **fields: Any) -> Process:
        """A process of this type that is to be started. `args` is the JSON text of `[positional, named]` arguments. Its
        tasks are pinned to the `version` of the application that starts it, if that is known and its type says so."""
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
        """Start a process. With a custom id that a process of this type has already, that one, unless it is replaced.

        Raises CustomIdTaken where that one was started with other arguments; StartRefused where the type is disabled
        or, if it has markers, there is one of it and the process's key; and ServerUnavailable where MongoDB did not
        confirm it.
        """
        with tracing.starting(wanted.type) as span:
            started = self._start(wanted.evolve(trace=span.carried))
            span.say(process_id=started.id, was_there=started.was_there)
            return started

    def start_many(self, wanted: Sequence[Process], *, ordered: bool = False) -> list[Started]:
        """Start processes; what became of each, in their order. `ordered`: none behind one that could not be started.

        Raises ServerUnavailable where MongoDB did not confirm all.
        """
        if tracing.is_on():
            wanted = [self._traced(one) for one in wanted]
        return self._start_in_order(wanted) if ordered else self._start_all(wanted)

    @property
    def _first_look(self) -> float:
        """Seconds to the first deadline."""
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
                f"({error}). Start it again with a custom_id, which starts it once at the most"
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
            saved = self._save([one for one in batch if one.id not in refused], done, ordered=False)
            for one in batch:
                if one.id in saved:
                    done.append(Started(one.id))
                elif one.id in refused:
                    done.append(Started(one.id, error=refused[one.id]))
                else:
                    done.append(self._start_or_say_why_not(one))
        return done

    def _start_in_order(self, wanted: Sequence[Process]) -> list[Started]:
        done: list[Started] = []
        for batch in by_size(wanted):
            left = list(batch)
            while left:
                refused = self._refused(left, most=1)
                allowed = next((number for number, one in enumerate(left) if one.id in refused), len(left))
                saved = self._save(left[:allowed], done, ordered=True)
                done += [Started(one.id) for one in left[: len(saved)]]
                if stopped := left[len(saved) : len(saved) + 1]:
                    # By the refusal, or before it by a process that has the custom id.
                    why = refused.get(stopped[0].id)
                    done.append(Started(stopped[0].id, error=why) if why else self._start_or_say_why_not(stopped[0]))
                    if done[-1].error is not None:
                        return done + [Started(one.id, error=InputError(NOT_STARTED)) for one in wanted[len(done) :]]
                left = left[len(saved) + 1 :]
        return done

    def _refused(self, batch: Sequence[Process], most: int | None = None) -> dict[str, InputError]:
        """{process: why it is not to be started}; of at `most` so many. Asked for each batch anew: many take long, and
        an operator may have disabled their type by then."""
        refused: dict[str, InputError] = {}
        if not self._is_refusable:
            return refused
        check = checking(self.resources, self.kind.keeps_markers)
        for one in batch:
            try:
                check(one)
            except InputError as error:
                refused[one.id] = error
                if len(refused) == most:
                    break
        return refused

    def _save(self, some: Sequence[Process], before: Sequence[Started], *, ordered: bool) -> set[str]:
        """Save those that nobody has the custom ids of, and have them registered; their ids. `ordered`: up to the first
        that somebody has."""
        if not some:
            return set()
        store = self.resources.store
        try:
            saved = through_outage(
                self.resources,
                lambda: store.processes.insert_many(some, self._first_look, store.now(), ordered=ordered),
                CONFIRMED_TIMEOUT,
                some[0].id,
            )
        except StoreUnavailable as error:
            started = sum(one.error is None for one in before)
            raise ServerUnavailable(
                f"{started:,} processes of type {some[0].type} are started, and those behind them may not have been: "
                f"MongoDB did not confirm them ({error}). Start them again with custom_ids, which start each once at "
                "the most"
            ) from error
        after_saving(saved, self._register)
        return {one.id for one in saved}


def _register_as_well(resources: Resources, process: Process, register: Register) -> None:
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
        register([whole])


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
