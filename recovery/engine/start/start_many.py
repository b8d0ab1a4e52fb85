"""Starts of many processes of one type: their records are saved a thousand at once, and registered beside.

Each is acknowledged as one is (`start`). One that can't be saved, since another process has its custom id, takes the
way of one, which says what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recovery.engine.outages import through_outage
from recovery.engine.resources import Resources
from recovery.engine.start.admission import AbortReplaced, IfExists, checking
from recovery.engine.start.registration import Register, after_saving, by_size
from recovery.engine.start.start import CONFIRMED_TIMEOUT, Started, start_made
from recovery.errors import InputError, ServerUnavailable, StoreUnavailable
from recovery.records import Process, ProcessTypePreferences

NOT_STARTED = "not started: one before it could not be, and ordered=True says that none is then"


@dataclass(frozen=True, slots=True)
class ManyStarts:
    """How processes are started."""

    resources: Resources
    first_look: float
    start_one: Callable[[Process], Started]
    """The way of one. Raises InputError."""
    checking: Callable[[], Callable[[Process], None] | None]
    """Makes what raises InputError for one that is not to be started, or None where all may be; for each batch anew,
    since many take long, and an operator may have disabled their type by then."""
    register: Register

    def start(self, wanted: Sequence[Process]) -> list[Started]:
        """Start these; what became of each, in their order."""
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
                    done.append(self._start_one(one))
        return done

    def start_in_order(self, wanted: Sequence[Process]) -> list[Started]:
        """The same, but for those behind one that could not be started: none of them is."""
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
                    done.append(Started(stopped[0].id, error=why) if why else self._start_one(stopped[0]))
                    if done[-1].error is not None:
                        return done + [Started(one.id, error=InputError(NOT_STARTED)) for one in wanted[len(done) :]]
                left = left[len(saved) + 1 :]
        return done

    def _refused(self, batch: Sequence[Process], most: int | None = None) -> dict[str, InputError]:
        """{process: why it is not to be started}; of at `most` so many."""
        refused: dict[str, InputError] = {}
        check = self.checking()
        if check is None:
            return refused
        for one in batch:
            try:
                check(one)
            except InputError as error:
                refused[one.id] = error
                if len(refused) == most:
                    break
        return refused

    def _start_one(self, one: Process) -> Started:
        try:
            return self.start_one(one)
        except InputError as error:
            return Started(one.id, error=error)

    def _save(self, some: Sequence[Process], before: Sequence[Started], *, ordered: bool) -> set[str]:
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
            started = sum(one.error is None for one in before)
            raise ServerUnavailable(
                f"{started:,} processes of type {some[0].type} are started, and those behind them may not have been: "
                f"MongoDB did not confirm them ({error}). Start them again with custom_ids, which start each once at "
                "the most"
            ) from error
        after_saving(saved, self.register)
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

    def refusing() -> Callable[[Process], None] | None:
        refusable = kind.markers or resources.store.preferences.disabled(kind.id) is not None
        return checking(resources, kind.markers) if refusable else None

    def one(wanted: Process) -> Started:
        return start_made(
            resources,
            wanted,
            process_timeout=kind.process_timeout,
            any_arguments=any_arguments,
            markers=kind.markers,
            if_exists=IfExists.RETURN,
            abort_replaced=abort_replaced,
            beside=register,
        )

    return ManyStarts(resources, first_look, one, refusing, register)
