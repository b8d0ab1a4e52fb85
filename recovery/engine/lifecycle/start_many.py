"""Starts of many processes of one type: their records are saved a thousand at once, and registered beside.

Each is acknowledged as one is (`start`). One that can't be saved, since another process has its custom id, takes the
way of one, which says what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from recovery import metrics
from recovery.engine.lifecycle.custom_ids import AbortReplaced, IfExists
from recovery.engine.lifecycle.refusal import check_start
from recovery.engine.lifecycle.registering import Register
from recovery.engine.lifecycle.start import CONFIRMED_TIMEOUT, Started, start_process
from recovery.engine.outages import through_outage
from recovery.engine.resources import Resources
from recovery.errors import InputError, ServerUnavailable, StoreUnavailable
from recovery.records import Process, ProcessTypePreferences

TOGETHER = 1000
"""Processes that are saved at once."""
BYTES = 4 * 1024 * 1024
"""Of their arguments, about, at once."""
NOT_STARTED = "not started: one before it could not be, and ordered=True says that none is then"


@dataclass(frozen=True, slots=True)
class ManyStarts:
    """How processes are started."""

    resources: Resources
    first_look: float
    start_one: Callable[[Process], Started]
    """The way of one. Raises InputError."""
    check: Callable[[Process], None] | None
    """Raises InputError for one that is not to be started; None where all may be."""
    register: Register

    def start(self, wanted: Sequence[Process]) -> list[Started]:
        """Start these; what became of each, in their order."""
        done: list[Started] = []
        for batch in _batches(wanted):
            refused = {one.id: why for one in batch if (why := self._refusal(one)) is not None}
            saved = self._save([one for one in batch if one.id not in refused], len(done), ordered=False)
            for one in batch:
                if one.id in saved:
                    done.append(Started(one.id))
                elif one.id in refused:
                    done.append(Started(one.id, error=refused[one.id]))
                else:
                    done.append(self._start_one(one))
        return done

    def start_in_order(self, wanted: Sequence[Process]) -> list[Started]:
        """The same, but for those behind one that could not be started: none of them is."""
        done: list[Started] = []
        for batch in _batches(wanted):
            left = list(batch)
            while left:
                allowed, why = self._allowed(left)
                saved = self._save(left[:allowed], len(done), ordered=True)
                done += [Started(one.id) for one in left[: len(saved)]]
                stopped_by_other = len(saved) < allowed
                left = left[len(saved) :]
                if left:
                    one, left = left[0], left[1:]
                    done.append(self._start_one(one) if stopped_by_other or why is None else Started(one.id, error=why))
                    if done[-1].error is not None:
                        return done + [Started(one.id, error=InputError(NOT_STARTED)) for one in wanted[len(done) :]]
        return done

    def _allowed(self, some: Sequence[Process]) -> tuple[int, InputError | None]:
        """How many of these, from the first on, may be started; and why the next may not."""
        for number, one in enumerate(some):
            if (why := self._refusal(one)) is not None:
                return number, why
        return len(some), None

    def _refusal(self, one: Process) -> InputError | None:
        if self.check is not None:
            try:
                self.check(one)
            except InputError as error:
                return error
        return None

    def _start_one(self, one: Process) -> Started:
        try:
            return self.start_one(one)
        except InputError as error:
            return Started(one.id, error=error)

    def _save(self, some: Sequence[Process], before: int, *, ordered: bool) -> set[str]:
        """Save those that nobody has the custom ids of, and have them registered; their ids. `ordered`: up to the first
        that somebody has."""
        if not some:
            return set()
        store = self.resources.store
        try:
            saved = through_outage(
                self.resources,
                lambda: store.processes.insert_many(some, self.first_look, store.now(), ordered=ordered),
                CONFIRMED_TIMEOUT,
                some[0].id,
            )
        except StoreUnavailable as error:
            raise ServerUnavailable(
                f"{before:,} processes of type {some[0].type} are started, and those behind them may not have been: "
                f"MongoDB did not confirm them ({error}). Start them again with custom_ids, which start each once at "
                "the most"
            ) from error
        metrics.PROCESSES_STARTED.labels(some[0].type).inc(len(saved))
        self.register(saved)
        return {one.id for one in saved}


def starting_many(
    resources: Resources,
    kind: ProcessTypePreferences,
    abort_replaced: AbortReplaced,
    register: Register,
    any_arguments: bool,
) -> ManyStarts:
    """Starts of a process type. One that aborted gives up its custom id, as with `start`."""
    first_look = min(kind.idle_timeout, kind.process_timeout or kind.idle_timeout)
    refusable = kind.markers or resources.store.preferences.disabled(kind.id) is not None

    def one(wanted: Process) -> Started:
        return start_process(
            resources,
            wanted,
            process_timeout=kind.process_timeout,
            any_arguments=any_arguments,
            markers=kind.markers,
            if_exists=IfExists.RETURN,
            abort_replaced=abort_replaced,
            beside=register,
        )

    check = partial(check_start, resources, markers=kind.markers) if refusable else None
    return ManyStarts(resources, first_look, one, check, register)


def _batches(wanted: Sequence[Process]) -> Iterator[list[Process]]:
    batch, size = list[Process](), 0
    for one in wanted:
        batch.append(one)
        size += len(one.args)
        if len(batch) >= TOGETHER or size >= BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
