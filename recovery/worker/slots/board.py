"""The board: what each slot of this worker runs, for its parent to read.

Celery knows which message a slot took. It does not know what runs there, since a slot goes on with tasks that became
ready. So each slot has a cell here, in which it writes what it is about to call and clears it afterwards. That costs
microseconds: the processes of a pool share memory with their parent (`SharedBoard`), threads have a dictionary.

What is read is what was written, whole, or nothing: a cell bears a checksum, and one that is being written is passed
over until the next look. Its generation goes up with each write, so who comes back to a cell knows whether it is still
the same call.

Of a process that died its cell stands beside its successor's, until that one dies: what it had run is asked for when
its death is known, and then it may have a successor.
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
"""Exit code of a worker that ends itself since a thread of it hangs. Not 0: whoever runs it is to start it again."""
PLACES = 1024
"""Processes of a pool that have a cell; a machine with more of them in one worker is yet to come. Memory that nobody
writes to takes no room."""
CELL = 1024
"""Bytes. What is not a name takes some 200."""
LONGEST_NAME = 100
"""Characters of an actor's name that are kept, of up to six bytes each."""
_HEAD = struct.Struct("<IIH")
_GENERATIONS = 2**32


@dataclass(frozen=True, slots=True)
class Cell:
    """What a slot runs."""

    place: int
    """Of a process its place in the pool, of a thread its number."""
    generation: int
    pid: int
    actor: str
    claim: Claim
    timeout: float
    """Seconds that it may run, from its claim or its last heartbeat."""
    since: float
    """When its function was called, by `time.monotonic`, which is one clock for all processes of a machine."""


class Board(ABC):
    """What the slots of one worker run. Slots `enter` and `leave`; the parent reads `cells`."""

    closed = False
    """Whether what comes back to a slot of this process counts for nothing any more. For threads: processes of a pool
    have their own, and are killed instead."""
    _ending = False

    def close(self) -> None:
        """End this process: whatever its slots still return is dropped."""
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
        """Note what the calling slot is about to run."""

    @abstractmethod
    def leave(self) -> None:
        """Note that the calling slot has run what it entered."""

    @abstractmethod
    def cells(self) -> list[Cell]:
        """Return what the live slots run."""

    @abstractmethod
    def slots(self) -> int:
        """Return how many slots there are."""

    def last_run(self, pid: int) -> LastRun | None:
        """Return what a process of this worker ran when it died; None if that is not known."""
        del pid
        return None

    def still(self, cell: Cell) -> bool:
        """Whether a slot still runs the call that this cell was read of."""
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
        """`pool` gives the processes that live, {place: pid}; `slots` how many there are to be."""
        self._pool, self._slots = pool, slots
        # Shared with all that is forked from here on; the second half is of those that died. The last byte is 1 once
        # the worker ends, and 2 once it ends what still runs.
        self._memory = mmap.mmap(-1, 2 * PLACES * CELL + 1)
        self._entered: int | None = None

    @property
    def takes_more(self) -> bool:
        return self._memory[-1] == 0

    def take_no_more(self) -> None:
        self._memory[-1] = max(self._memory[-1], 1)

    @property
    def ends_at_once(self) -> bool:
        """Whether a worker that was told to end also ends what still runs."""
        return self._memory[-1] == 2

    def end_at_once(self) -> None:
        """Note that this worker ends what still runs, if it was told to end before."""
        if not self.takes_more:
            self._memory[-1] = 2

    def enter(self, decision: Decision, timeout: float) -> None:
        place = self._place()
        if place is not None:
            self._keep_last(place)
            self._write(_cell(place, self._generation(place) + 1, decision, timeout))

    def leave(self) -> None:
        place = self._place()
        # What an actor forked, and lets return from its function, comes here as well.
        if place is not None and (cell := self._read(place)) is not None and cell.pid == os.getpid():
            self._put(place, cell.generation + 1, b"[%d]" % cell.pid)

    def cells(self) -> list[Cell]:
        found = [(self._read(place), pid) for place, pid in self._pool().items() if place < PLACES]
        # Of a process that died there may be a cell left, until its successor writes over it.
        return [cell for cell, pid in found if cell is not None and cell.pid == pid]

    def slots(self) -> int:
        return self._slots()

    def last_run(self, pid: int) -> LastRun | None:
        for place in range(2 * PLACES):
            entry = self._entry(place)
            if entry is not None and entry[1][0] == pid:
                return LastRun(entry[1][2] if len(entry[1]) > 1 else None)
        return None

    def _keep_last(self, place: int) -> None:
        """Keep what this process's predecessor had written, before this process writes for the first time."""
        if self._entered != (pid := os.getpid()):
            self._entered = pid
            start, kept = place * CELL, (PLACES + place) * CELL
            self._memory[kept : kept + CELL] = self._memory[start : start + CELL]

    def _place(self) -> int | None:
        place = getattr(current_process(), "index", None)
        return place if isinstance(place, int) and place < PLACES else None

    def _generation(self, place: int) -> int:
        return int(_HEAD.unpack_from(self._memory, place * CELL)[0])

    def _write(self, cell: Cell) -> None:
        entry = [cell.pid, cell.actor[:LONGEST_NAME], *cell.claim, cell.timeout, cell.since]
        text = json.dumps(entry, ensure_ascii=False).encode()
        if _HEAD.size + len(text) <= CELL:  # but for ids that are none of ours
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
        """Return the generation of an entry, and the entry: the pid of the process that wrote it, and what it runs if
        it runs something."""
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
