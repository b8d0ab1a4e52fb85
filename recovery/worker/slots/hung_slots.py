"""Slots that hang: found by the worker's parent, told of, and freed.

A function that does not return takes its slot for ever, and with each time-out its task takes another one. So the
parent reads on the board what its slots run. What runs past its `worker_timeout` is asked for in MongoDB: while it has
its claim (by heartbeats), it may go on. If it lost its claim, its slot hangs, or is only slow, and is freed

    at once                             if its task has ended, since nothing of it is taken any more
    at once                             if no slot of this worker is free: others wait for it
    after another `worker_timeout`      else: with `accept_first`, what is only slow may still be the first

A process of the pool is killed, with all that it started, and the pool starts another one. A thread can't be killed:
the worker ends itself, after it gave back the rest, and whoever runs it starts it again.

What can't be told counts as held, and frees nothing: whether a majority of MongoDB's members lags behind the claim, or
the record can't be read. It holds up no other slot, and is told now and then.

No attempt is counted here: that its claim was lost was counted where that was found. Works without `events` as well,
since no deadline frees a slot.
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
"""Seconds. A look at the board costs microseconds; MongoDB is asked only while something runs past its time."""
LOOK_IDLE = 1.0
"""The same while no slot runs anything. Only what has less than half a second for its work is found later for it."""
ASK_TIMEOUT = 5.0
"""Seconds. The others wait for it, and it is asked again."""
SAY_EVERY = 60.0
"""Seconds between two lines that say of what nothing is known: that may stay so for long."""

Free = Callable[[Cell, str, Callable[[], None]], None]


@dataclass(frozen=True, slots=True)
class Lost:
    """What is known of a slot that goes on without its claim."""

    seen: float
    """When that was seen first, by `time.monotonic`."""
    since: datetime
    """When its function was called, by the database's clock."""


class HungSlots:
    """Looks after the slots of one worker. `start` in the parent process.

    `free` frees the slot of a cell, for a reason, unless the slot has moved on; once that is certain, and before this
    process ends, it calls what it is given.
    """

    def __init__(self, app: Recovery, board: Board, worker: str, free: Free) -> None:
        self._app, self._board, self._worker, self._free = app, board, worker, free
        self._lost: dict[Cell, Lost] = {}
        self._freed: set[Cell] = set()
        self._said = float("-inf")
        self._idle = False
        self._thread = ServiceThread("hung slots", self._look, self._failed, first=LOOK_EVERY)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Free no more slots."""
        self._thread.stop()

    def report(self) -> tuple[HungSlot, ...]:
        """Return the slots that hang now, for the worker's record. Any thread."""
        return tuple(
            HungSlot(actor=cell.actor, task=cell.claim.decision_id, since=lost.since)
            for cell, lost in self._lost.copy().items()
        )

    def count(self) -> int:
        """Return how many slots hang now, or did when they were freed and are not gone yet. Any thread."""
        return len({*self._lost.copy(), *self._freed.copy()})

    def _look(self) -> float:
        self.look_once()
        return self._until_next()

    def _failed(self, error: Exception) -> float:
        if isinstance(error, StoreError):
            log.warning("not known whose tasks those are that run past their time (%s): asked again", error)
        else:  # of what it reads on the board
            log.error("could not look for slots that hang", exc_info=error)
        return self._until_next()

    def _until_next(self) -> float:
        return LOOK_IDLE if self._idle else LOOK_EVERY

    def look_once(self) -> int:
        """Look at the board once. Return how many slots were freed. Raises StoreError."""
        running, now = self._board.cells(), time.monotonic()
        self._idle = not running
        self._freed &= set(running)  # those are not seen to be gone yet
        late = [cell for cell in running if now - cell.since > cell.timeout and cell not in self._freed]
        found = self._fates(late)
        if late:  # what returned while MongoDB was asked does not hang: the end that was read may be its own
            running = self._board.cells()
            found = {cell: fate for cell, fate in found.items() if cell in running}
        running = [cell for cell in running if cell not in self._freed]
        fates = {cell: fate for cell, fate in found.items() if fate in (Fate.LOST, Fate.DECIDED)}
        unknown = {cell: fate for cell, fate in found.items() if fate not in KNOWN}
        self._say(unknown, now)
        # What has lost its claim has lost it for good, whatever can be read just now.
        for cell in self._lost.keys() - fates.keys() - unknown.keys():
            del self._lost[cell]
        free = before = self._board.slots() - len(running)
        for cell in sorted(fates, key=lambda one: one.since):
            if cell not in self._lost:
                self._lost[cell] = Lost(now, self._since(cell))
            reason = self._reason(cell, fates[cell], now - self._lost[cell].seen, free)
            if reason and not self._thread.is_ending:
                self._free(cell, reason, partial(self._note, cell))
                free += cell in self._freed
        return free - before

    def _fates(self, late: list[Cell]) -> dict[Cell, Fate]:
        """Return what became of the claims of these slots."""
        if not late:
            return {}
        with time_limit(ASK_TIMEOUT):
            found = self._app.resources.store.hung.fates([cell.claim for cell in late])
        return {cell: found[cell.claim] for cell in late}

    def _say(self, unknown: Mapping[Cell, Fate], now: float) -> None:
        """Log now and then of which slots it is not known whether they hang."""
        if not unknown or now - self._said < SAY_EVERY:
            return
        self._said = now
        first, fate = next(iter(unknown.items()))
        more = f", and so with {len(unknown) - 1} more" if len(unknown) > 1 else ""
        log.warning(
            "%s %s runs past its time, and whether it has its task is not known: %s%s; their slots are not freed",
            first.actor, first.claim.decision_id, fate.value, more,
        )  # fmt: skip

    def _since(self, cell: Cell) -> datetime:
        with time_limit(ASK_TIMEOUT):
            now = self._app.resources.store.now()
        return now - timedelta(seconds=time.monotonic() - cell.since)

    def _reason(self, cell: Cell, fate: Fate, lost_for: float, free: int) -> str | None:
        """Return why a slot is to be freed now; None if it is not."""
        if fate is Fate.DECIDED:
            return "its task has ended without it"
        if free <= 0:
            return "it has lost its task, and no slot is free"
        if lost_for >= cell.timeout:
            return f"it has lost its task for another {cell.timeout:g} s"
        return None

    def _note(self, cell: Cell) -> None:
        self._freed.add(cell)
        self._lost.pop(cell, None)
        try:
            with time_limit(ASK_TIMEOUT):
                self._app.resources.store.hung.note_freed(cell.actor, self._worker, cell.claim.decision_id)
        except StoreError as error:
            log.warning("not noted that a slot of %s was freed (%s)", cell.actor, error)


def by_killing(board: Board) -> Free:
    """Return a function that frees a slot by killing its pool process; the pool starts another. What the process had
    finished and not yet applied is found, as with any process that dies."""

    def kill(cell: Cell, reason: str, note: Callable[[], None]) -> None:
        if kill_if(cell.pid, lambda: board.still(cell)):
            note()
            log.error("%s: %s; pool process %d was killed, its slot is free", _hangs(cell), reason, cell.pid)

    return kill


def by_ending(board: Board, end: Callable[[], None]) -> Free:
    """Return a function that frees a slot by ending the worker, which gives back the rest.

    A thread can't be stopped for a last look, so the board is asked twice: before the slot is noted as freed, and once
    more before the worker ends, because MongoDB may take seconds to write the note.
    """

    def free(cell: Cell, reason: str, note: Callable[[], None]) -> None:
        if not board.still(cell):
            return
        note()
        if not board.still(cell):
            log.warning("%s came back just before this worker ended for it: the worker goes on", _names(cell))
            return
        advice = "start it again; with --pool prefork such a slot is freed by itself"
        log.error("%s: %s; this worker gives back the rest and ends, code %d: %s", _hangs(cell), reason, HUNG, advice)
        end()

    return free


def _hangs(cell: Cell) -> str:
    return f"{_names(cell)} hangs, for {time.monotonic() - cell.since:.1f} s now"


def _names(cell: Cell) -> str:
    return f"{cell.actor} {cell.claim.decision_id}"
