"""A file that a process of a worker keeps its counts in, which may be removed or find no room at any time.

prometheus-client writes into sparse files that it maps: in a full folder that is a SIGBUS, and without the folder it
raises wherever something is counted. Counting must never break the work that it counts. So

    a file's blocks are allocated before it is mapped        a full folder is an OSError, which is caught here
    without a file a process counts in memory                and goes on to do so until it can write a file
    every LOOK_EVERY seconds a process looks at its file     one that was removed is written anew, with all counts

Keys and values have prometheus-client's own form, which its collector reads.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import time
from pathlib import Path
from typing import IO, Any

from prometheus_client.mmap_dict import MmapedDict

from recovery.seldom import Seldom
from recovery.worker.metrics_folder import FOLDER, make_folder

SIZE = 1 << 16
"""Bytes that a file begins with."""
LOOK_EVERY = 5.0
"""Seconds between two looks whether a process's file is still there. A look is a system call or two."""
SAY_EVERY = 300.0
"""Seconds between two lines on files that can't be written."""
_HEAD = 8
"""Bytes before the first value. They hold how many bytes are used."""
_USED = struct.Struct("i")
_VALUE = struct.Struct("dd")

log = logging.getLogger(__name__)
_said = Seldom(log, SAY_EVERY)


class CounterFile(MmapedDict):
    """The counts of one process, of one type of metric: in a mapped file if it can be written, else in memory."""

    def __init__(self, path: Path | None) -> None:
        """Go on with the counts that the file holds. None: count in memory only."""
        self._path = path
        self._open: IO[bytes] | None = None
        self._m: Any = bytearray(SIZE)
        self._capacity, self._used = SIZE, _HEAD
        self._positions: dict[str, int] = {}
        self._store_used(self._m)
        self._looked_at = float("-inf")
        self._look(adopt=True)

    def write_value(self, key: str, value: float, timestamp: float) -> None:
        """Write a count. Does not raise because of the file."""
        if time.monotonic() - self._looked_at > LOOK_EVERY:
            self._look()
        if (place := self._positions.get(key)) is None:
            self._init_value(key)
            place = self._positions[key]
        self._m[place : place + _VALUE.size] = _VALUE.pack(value, timestamp)

    def _init_value(self, key: str) -> None:
        # A key is at most twice its characters as JSON; see `bounded` for how long a label may be.
        need = self._used + 4 * len(key) + 64
        if need > self._capacity:
            self._grow(need)
        super()._init_value(key)  # type: ignore[no-untyped-call]

    def _grow(self, need: int) -> None:
        capacity = self._capacity
        while capacity < need:
            capacity *= 2
        if self._open is not None:
            try:
                self._m = _mapped(self._open, capacity)
            except (OSError, ValueError) as error:
                self._fails(error)
        if self._open is None:
            self._m = bytearray(self._m[: self._used]).ljust(capacity, b"\0")
        self._capacity = capacity

    def _look(self, *, adopt: bool = False) -> None:
        """Write the file, unless it is there; `adopt` the counts that it holds."""
        self._looked_at = time.monotonic()
        if self._path is None or (self._open is not None and self._is_there(self._open)):
            return
        file: IO[bytes] | None = None
        try:
            make_folder(self._path.parent)
            file = self._path.open("a+b")  # kept until `close`
            mapped = _mapped(file, max(self._capacity, os.fstat(file.fileno()).st_size))
            if adopt:
                self._adopt(mapped)
            mapped[_HEAD : self._used] = self._m[_HEAD : self._used]
            self._store_used(mapped)
        except Exception as error:  # of a file that others may have written, too
            if file is not None:
                file.close()
            self._fails(error)
            return
        self._release()
        self._open, self._m, self._capacity = file, mapped, len(mapped)

    def _adopt(self, mapped: mmap.mmap) -> None:
        """Take the counts that stand in a file, if it is whole."""
        used = _USED.unpack_from(mapped)[0]
        if used > len(mapped):
            raise ValueError("it was cut off")
        if used > _HEAD:
            found = bytearray(mapped[:])
            whole = CounterFile(None)
            whole._m, whole._used = found, used
            self._positions = {key: place for key, _, _, place in whole._read_all_values()}  # type: ignore[no-untyped-call]
            self._m, self._used, self._capacity = found, used, len(found)

    def _is_there(self, file: IO[bytes]) -> bool:
        try:
            return self._path is not None and os.path.samestat(self._path.stat(), os.fstat(file.fileno()))
        except OSError:
            return False

    def _fails(self, error: Exception) -> None:
        """Go on in memory."""
        if self._open is not None:
            memory = bytearray(self._m[:])
            self._release()
            self._m, self._capacity = memory, len(memory)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        _said.warning(
            "the metrics of this process can't be written to %s (%s), and its latest counts are not served until they "
            "can; tasks are not affected. Free space there, or have %s name another folder",
            self._path, reason, FOLDER,
        )  # fmt: skip

    def _store_used(self, memory: Any) -> None:
        memory[: _USED.size] = _USED.pack(self._used)

    def _release(self) -> None:
        if self._open is not None:
            self._m.close()
            self._open.close()
            self._open = None

    def close(self) -> None:
        """Close the file."""
        self._release()


def _mapped(file: IO[bytes], size: int) -> mmap.mmap:
    """Map a file of which each block is allocated: a block that is not would be a SIGBUS once its disk is full."""
    os.posix_fallocate(file.fileno(), 0, size)
    return mmap.mmap(file.fileno(), size)
