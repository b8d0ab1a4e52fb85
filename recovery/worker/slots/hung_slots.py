"""Hung slots: the worker's parent process finds, logs and frees them.

A function that does not return occupies its slot for ever, and each time-out gives its task another slot. So the parent
reads on the board which calls the slots run. For a call that runs longer than its `worker_timeout`, it asks MongoDB
whether the call still has its claim, which heartbeats extend. A call with its claim may go on. A slot that has lost its
claim hangs, or is only slow. It is freed

    at once                             if its task has ended, because no result of this slot is accepted any more
    at once                             if no slot of this worker is free, because other tasks wait for one
    after another `worker_timeout`      otherwise: with `accept_first` a slow call may still be the first to finish

A pool process is killed, with all that it started, and the pool starts another. A thread can't be killed: the worker
gives the other tasks back and ends itself, and its supervisor starts it again.

If it is unknown whether a slot has its claim, nothing is freed. This happens if a majority of MongoDB's members lags
behind the claim, or if the record can't be read. Other slots are not affected, and it is logged from time to time.

No attempt is counted here: that its claim was lost is counted where the loss is found. All this works without `events`
too, because no deadline frees a slot.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from recovery.engine import Recovery
from recovery.errors import StoreError
from recovery.records import HungSlot
from recovery.store.views.lifeline_queries import KNOWN, Fate
from recovery.store.views.overview import time_limit
from recovery.threads import ServiceThread
from recovery.worker.slots.board import HUNG, Board, Cell
from recovery.worker.slots.killing import kill_if

log = logging.getLogger(__name__)

LOOK_EVERY = 0.5
"""Seconds between two looks at the board. A look takes microseconds; MongoDB is asked only while a call runs past its
time."""
LOOK_IDLE = 1.0
"""Seconds between two looks while no slot runs anything. This delays only a call whose timeout is below 0.5 s."""
ASK_TIMEOUT = 5.0
"""Maximum seconds to wait for MongoDB. Other slots wait meanwhile, and the question is repeated."""
SAY_EVERY = 60.0
"""Seconds between two log lines about slots of unknown state, which may last long."""

Free = Callable[[Cell, str, Callable[[], None]], None]


@dataclass(frozen=True, slots=True)
class Lost:
    """A slot that still runs its function although it has lost the claim of its task."""

    seen: float
    """When the loss was first seen, by `time.monotonic`."""
    since: datetime
    """When its function was called, by the database's clock."""


class HungSlots:
    """A watch over the slots of one worker, which frees hung slots. Call `start` in the parent process.

    `free(cell, reason, note)` frees the slot of a cell, unless the slot has moved on. Once the slot is certainly freed,
    and before this process ends, it calls `note`.
    """

    def __init__(self, app: Recovery, board: Board, worker: str, free: Free) -> None:
        self._app, self._board, self._worker, self._free = app, board, worker, free
        self._lost: dict[Cell, Lost] = {}
        self._freed: set[Cell] = set()
        self._logged_at = float("-inf")
        self._idle = False
        self._thread = ServiceThread("hung slots", self._look, self._look_failed, first=LOOK_EVERY)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Free no more slots."""
        self._thread.stop()

    def report(self) -> tuple[HungSlot, ...]:
        """Return the slots that hang now, for the worker's record. Thread-safe."""
        return tuple(
            HungSlot(actor=cell.actor, task=cell.claim.decision_id, since=lost.since)
            for cell, lost in self._lost.copy().items()
        )

    def count(self) -> int:
        """Return how many slots hang now, or have been freed and are not gone yet. Thread-safe."""
        return len({*self._lost.copy(), *self._freed.copy()})

    def _look(self) -> float:
        self.look_once()
        return self._until_next()

    def _look_failed(self, error: Exception) -> float:
        if isinstance(error, StoreError):
            log.warning("could not ask whose tasks run past their time (%s); asked again", error)
        else:  # caused by what is on the board
            log.error("could not look for hung slots", exc_info=error)
        return self._until_next()

    def _until_next(self) -> float:
        return LOOK_IDLE if self._idle else LOOK_EVERY

    def look_once(self) -> int:
        """Look at the board once. Return how many slots were freed. Raises StoreError."""
        running, now = self._board.cells(), time.monotonic()
        self._idle = not running
        self._freed &= set(running)  # the others are gone
        overrunning = [cell for cell in running if now - cell.since > cell.timeout and cell not in self._freed]
        fate_of = self._fates(overrunning)
        # a call that returned while MongoDB was asked does not hang: the end that was read may be its own
        if overrunning:
            running = self._board.cells()
            fate_of = {cell: fate for cell, fate in fate_of.items() if cell in running}
        running = [cell for cell in running if cell not in self._freed]
        lost_fates = {cell: fate for cell, fate in fate_of.items() if fate in (Fate.LOST, Fate.DECIDED)}
        unknown = {cell: fate for cell, fate in fate_of.items() if fate not in KNOWN}
        self._log_unknown(unknown, now)
        # A lost claim is lost for good, whatever can be read just now.
        for cell in self._lost.keys() - lost_fates.keys() - unknown.keys():
            del self._lost[cell]
        free_slots = free_before = self._board.slots() - len(running)
        for cell in sorted(lost_fates, key=lambda cell: cell.since):
            if cell not in self._lost:
                self._lost[cell] = Lost(now, self._since(cell))
            reason = self._reason(cell, lost_fates[cell], now - self._lost[cell].seen, free_slots)
            if reason and not self._thread.is_ending:
                self._free(cell, reason, partial(self._record_freed, cell))
                free_slots += cell in self._freed
        return free_slots - free_before

    def _fates(self, cells: list[Cell]) -> dict[Cell, Fate]:
        """Return {cell: fate of its claim}. Raises StoreError."""
        if not cells:
            return {}
        with time_limit(ASK_TIMEOUT):
            fates = self._app.resources.store.hung.fates([cell.claim for cell in cells])
        return {cell: fates[cell.claim] for cell in cells}

    def _log_unknown(self, unknown: Mapping[Cell, Fate], now: float) -> None:
        """Log, at most every SAY_EVERY seconds, of which slots it is unknown whether they hang."""
        if not unknown or now - self._logged_at < SAY_EVERY:
            return
        self._logged_at = now
        first, fate = next(iter(unknown.items()))
        more = f", and so with {len(unknown) - 1} more" if len(unknown) > 1 else ""
        log.warning(
            "%s %s runs past its time, and it is unknown whether it has its claim: %s%s; their slots are not freed",
            first.actor, first.claim.decision_id, fate.value, more,
        )  # fmt: skip

    def _since(self, cell: Cell) -> datetime:
        with time_limit(ASK_TIMEOUT):
            now = self._app.resources.store.now()
        return now - timedelta(seconds=time.monotonic() - cell.since)

    def _reason(self, cell: Cell, fate: Fate, lost_for: float, free_slots: int) -> str | None:
        """Return the reason to free a slot now; None if it is not to be freed."""
        if fate is Fate.DECIDED:
            return "its task has ended without it"
        if free_slots <= 0:
            return "it has lost its task, and no slot is free"
        if lost_for >= cell.timeout:
            return f"it has lost its task for another {cell.timeout:g} s"
        return None

    def _record_freed(self, cell: Cell) -> None:
        self._freed.add(cell)
        self._lost.pop(cell, None)
        try:
            with time_limit(ASK_TIMEOUT):
                self._app.resources.store.hung.note_freed(cell.actor, self._worker, cell.claim.decision_id)
        except StoreError as error:
            log.warning("could not record that a slot of %s was freed (%s)", cell.actor, error)


def by_killing(board: Board) -> Free:
    """Return a function that frees a slot by killing its pool process; the pool starts another. Results that the
    process had not yet applied are found as after any death of a process."""

    def kill(cell: Cell, reason: str, note: Callable[[], None]) -> None:
        if kill_if(cell.pid, lambda: board.still(cell)):
            note()
            log.error("%s: %s; pool process %d was killed, its slot is free", _hang_time(cell), reason, cell.pid)

    return kill


def by_ending(board: Board, end: Callable[[], None]) -> Free:
    """Return a function that frees a slot by ending the worker, which gives back its other tasks.

    A thread can't be stopped for a last look, so the board is read twice: before the slot is recorded as freed, and
    again before the worker ends, because MongoDB may take seconds to write that record.
    """

    def free(cell: Cell, reason: str, note: Callable[[], None]) -> None:
        if not board.still(cell):
            return
        note()
        if not board.still(cell):
            log.warning(
                "%s returned just before this worker would have ended for it: the worker goes on", _call_name(cell)
            )
            return
        advice = "start it again; with --pool prefork such a slot is freed by itself"
        log.error(
            "%s: %s; this worker gives back the rest and ends, code %d: %s", _hang_time(cell), reason, HUNG, advice
        )
        end()

    return free


def _hang_time(cell: Cell) -> str:
    return f"{_call_name(cell)} hangs, for {time.monotonic() - cell.since:.1f} s now"


def _call_name(cell: Cell) -> str:
    return f"{cell.actor} {cell.claim.decision_id}"
