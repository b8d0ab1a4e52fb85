"""The board: each slot of a worker writes here what it runs, for the worker's parent process to read.

Celery knows which message a slot took, but not what runs there, because a slot goes on with other tasks. So each slot
has a cell, in which it writes the call that it is about to make, and which it clears afterwards. A write takes
microseconds: the processes of a pool share memory with their parent (`SharedBoard`), and threads use a dictionary.

A cell is read completely or not at all: it has a checksum, and a cell that is just being written is skipped until the
next look. Its generation increases with each write, so a reader that looks again sees whether it is still the same
call.

A dead process's last cell is kept next to its successor's until the successor dies, because the parent asks what a
process ran when its death is known, and by then it may have a successor.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from billiard.process import current_process

from recovery.engine import LastRun
from recovery.records import Decision
from recovery.store.views.lifeline_queries import Claim

HUNG = 1
"""Exit code of a worker that ends itself because a thread of it hangs. Not 0, so that a supervisor starts it again."""
PLACES = 1024
"""Maximum number of pool processes that have a cell. Unused cells take no memory."""
CELL = 1024
"""Size of a cell in bytes. Everything except the names takes about 200."""
LONGEST_NAME = 100
"""Maximum characters of an actor's name that are kept, of up to six bytes each."""
_HEAD = struct.Struct("<IIH")
_GENERATIONS = 2**32


@dataclass(frozen=True, slots=True)
class Cell:
    """The call that a slot runs."""

    place: int
    """The place of a process in its pool, or the number of a thread."""
    generation: int
    pid: int
    actor: str
    claim: Claim
    timeout: float
    """Seconds that the call may run, from its claim or its last heartbeat."""
    since: float
    """When its function was called, by `time.monotonic`, which is the same clock for all processes of a machine."""


class Board(ABC):
    """The calls that the slots of one worker run. Slots call `enter` and `leave`; the parent reads `cells`."""

    closed = False
    """Whether results that come back to a slot of this process are dropped. Only for threads: pool processes have
    copies of their own, and are killed instead."""
    _ending = False

    def close(self) -> None:
        """Drop the results that slots of this process still return, because the process ends."""
        self.closed = True

    @property
    def takes_more(self) -> bool:
        """Whether slots may take messages by themselves."""
        return not self._ending

    def take_no_more(self) -> None:
        """Note that the worker was told to end. Called from a signal handler."""
        self._ending = True

    @abstractmethod
    def enter(self, decision: Decision, timeout: float) -> None:
        """Note the call that the calling slot is about to make."""

    @abstractmethod
    def leave(self) -> None:
        """Note that the calling slot's call has ended."""

    @abstractmethod
    def cells(self) -> list[Cell]:
        """Return the calls that the live slots run."""

    @abstractmethod
    def slots(self) -> int:
        """Return the number of slots."""

    def last_run(self, pid: int) -> LastRun | None:
        """Return what a process of this worker ran when it died; None if that is not known."""
        del pid
        return None

    def still(self, cell: Cell) -> bool:
        """Return whether a slot still runs the call that this cell describes."""
        return cell in self.cells()


class ThreadBoard(Board):
    """The board of a pool of threads."""

    def __init__(self, slots: Callable[[], int]) -> None:
        self._slots = slots
        self._cells: dict[int, Cell] = {}
        self._generations = itertools.count(1)

    def enter(self, decision: Decision, timeout: float) -> None:
        place = threading.get_ident()
        self._cells[place] = _cell(place, next(self._generations), decision, timeout)

    def leave(self) -> None:
        self._cells.pop(threading.get_ident(), None)

    def cells(self) -> list[Cell]:
        return list(self._cells.copy().values())

    def slots(self) -> int:
        return self._slots()


class SharedBoard(Board):
    """The board of a pool of processes. Made before they are forked."""

    def __init__(self, pool: Callable[[], Mapping[int, int]], slots: Callable[[], int]) -> None:
        """`pool` returns the live processes, {place: process id}; `slots` the intended number of processes."""
        self._pool, self._slots = pool, slots
        # Shared with all processes that are forked from now on. The second half is for the last cells of dead
        # processes. The last byte is 1 once the worker ends, and 2 once it also ends running tasks.
        self._memory = mmap.mmap(-1, 2 * PLACES * CELL + 1)
        self._entered_by: int | None = None

    @property
    def takes_more(self) -> bool:
        return self._memory[-1] == 0

    def take_no_more(self) -> None:
        self._memory[-1] = max(self._memory[-1], 1)

    @property
    def ends_at_once(self) -> bool:
        """Whether the worker was told to end, and also ends running tasks."""
        return self._memory[-1] == 2

    def end_at_once(self) -> None:
        """Note that this worker ends running tasks, if it was told to end before."""
        if not self.takes_more:
            self._memory[-1] = 2

    def enter(self, decision: Decision, timeout: float) -> None:
        place = self._place()
        if place is not None:
            self._keep_last(place)
            self._write(_cell(place, self._generation(place) + 1, decision, timeout))

    def leave(self) -> None:
        place = self._place()
        # An actor may fork, and let its child return from the function: that child gets here as well.
        if place is not None and (cell := self._read(place)) is not None and cell.pid == os.getpid():
            self._put(place, cell.generation + 1, b"[%d]" % cell.pid)

    def cells(self) -> list[Cell]:
        cells = [(self._read(place), pid) for place, pid in self._pool().items() if place < PLACES]
        # The cell of a dead process may still be in its place, until its successor overwrites the cell.
        return [cell for cell, pid in cells if cell is not None and cell.pid == pid]

    def slots(self) -> int:
        return self._slots()

    def last_run(self, pid: int) -> LastRun | None:
        for place in range(2 * PLACES):
            entry = self._entry(place)
            if entry is not None and entry[1][0] == pid:
                return LastRun(entry[1][2] if len(entry[1]) > 1 else None)
        return None

    def _keep_last(self, place: int) -> None:
        """Keep the last cell of this process's predecessor, before this process writes for the first time."""
        if self._entered_by != (pid := os.getpid()):
            self._entered_by = pid
            start, backup = place * CELL, (PLACES + place) * CELL
            self._memory[backup : backup + CELL] = self._memory[start : start + CELL]

    def _place(self) -> int | None:
        place = getattr(current_process(), "index", None)
        return place if isinstance(place, int) and place < PLACES else None

    def _generation(self, place: int) -> int:
        return int(_HEAD.unpack_from(self._memory, place * CELL)[0])

    def _write(self, cell: Cell) -> None:
        entry = [cell.pid, cell.actor[:LONGEST_NAME], *cell.claim, cell.timeout, cell.since]
        text = json.dumps(entry, ensure_ascii=False).encode()
        if _HEAD.size + len(text) <= CELL:  # false only for ids that are not ours
            self._put(cell.place, cell.generation, text)

    def _put(self, place: int, generation: int, text: bytes) -> None:
        generation %= _GENERATIONS
        head = _HEAD.pack(generation, crc32(text, generation), len(text))
        start = place * CELL
        self._memory[start : start + len(head) + len(text)] = head + text

    def _read(self, place: int) -> Cell | None:
        entry = self._entry(place)
        if entry is None or len(entry[1]) == 1:
            return None
        generation, (pid, actor, decision_id, pass_key, attempts, timeout, since) = entry
        return Cell(place, generation, pid, actor, Claim(decision_id, pass_key, attempts), timeout, since)

    def _entry(self, place: int) -> tuple[int, list[Any]] | None:
        """Return the generation and the content of a cell: the id of the process that wrote it, then the call that it
        runs, if any. Return None if the cell is empty or just being written."""
        raw = self._memory[place * CELL : (place + 1) * CELL]
        generation, checksum, length = _HEAD.unpack_from(raw)
        text = raw[_HEAD.size : _HEAD.size + length]
        if not text or crc32(text, generation) != checksum:
            return None
        return generation, json.loads(text)


def _cell(place: int, generation: int, decision: Decision, timeout: float) -> Cell:
    assert decision.pass_key is not None, "a claimed decision has a pass"
    claim = Claim(decision.id, decision.pass_key, decision.attempts)
    return Cell(place, generation, os.getpid(), decision.actor, claim, timeout, time.monotonic())
