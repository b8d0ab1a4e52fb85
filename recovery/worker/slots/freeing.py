"""How a slot that hangs is freed: a process of the pool is killed, of threads the worker ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from recovery.worker.slots.board import HUNG, Board, Cell
from recovery.worker.slots.hung_slots import Free
from recovery.worker.slots.killing import kill_if

log = logging.getLogger(__name__)


def by_killing(board: Board) -> Free:
    """Kill the process; the pool starts another. What it had finished and not yet applied is found, as of any that
    dies."""

    def kill(cell: Cell, reason: str, note: Callable[[], None]) -> None:
        if kill_if(cell.pid, lambda: board.still(cell)):
            note()
            log.error("%s: %s; pool process %d was killed, its slot is free", _hangs(cell), reason, cell.pid)

    return kill


def by_ending(board: Board, end: Callable[[], None]) -> Free:
    """End the worker, which gives back the rest.

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
