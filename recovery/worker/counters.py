"""The values of a worker's metrics. Each process counts in files of its own, which the worker's parent adds up.

Counting must never break the work that it counts, although a file may be removed or find no space at any time.
prometheus-client maps sparse files: a full folder then causes a SIGBUS, and a missing folder raises an error wherever
something is counted. Instead

    a file's blocks are allocated before it is mapped           a full folder raises OSError, which is caught here
    a process without a file counts in memory                   until it can write a file
    a process looks for its file every LOOK_EVERY seconds       it writes a removed file anew, with all counts

Keys and values have the form of prometheus-client, whose collector reads them.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import threading
import time
from pathlib import Path
from typing import IO, Any, ClassVar

from billiard.process import current_process
from prometheus_client import REGISTRY, values
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from recovery.log_lines import Seldom
from recovery.metrics_folder import MULTIPROC_DIR, make_folder

SIZE = 1 << 16
"""Initial size of a file in bytes."""
LOOK_EVERY = 5.0
"""Seconds between two checks whether a process's file still exists. A check is one or two system calls."""
SAY_EVERY = 300.0
"""Seconds between two log lines about files that can't be written."""
_HEAD = 8
"""Bytes before the first value. They hold how many bytes are used."""
_USED = struct.Struct("i")
_VALUE = struct.Struct("dd")
log = logging.getLogger(__name__)
_limited_log = Seldom(log, SAY_EVERY)


def who_counts() -> str:
    """Return the name that identifies this process in its files: its process id, or in a pool the pool's process id and
    the process's place in the pool.

    A process that replaces a dead one continues its counts, so there are never more files than places.
    """
    process = current_process()
    place = getattr(process, "index", None)
    # A process that an actor forked has inherited the place, but its parent is not the pool's.
    if place is None or os.getppid() != process._parent_pid:
        return str(os.getpid())
    return f"{process._parent_pid}-{place}"


class CountedValue:
    """One value of a metric, with the interface of prometheus-client's `ValueClass`.

    Its lock is free in each forked process, even if another thread was counting during the fork. The lock of
    prometheus-client's own class may be locked there.
    """

    _multiprocess = True
    _lock: ClassVar = threading.Lock()
    _owner: ClassVar[str | None] = None
    _files: ClassVar[dict[str, CounterFile]] = {}
    _values: ClassVar[list[CountedValue]] = []

    def __init__(
        self,
        typ: str,
        metric_name: str,
        name: str,
        labelnames: Any,
        labelvalues: Any,
        help_text: str,
        multiprocess_mode: str = "",
        **_: Any,
    ) -> None:
        self._kind = f"{typ}_{multiprocess_mode}" if typ == "gauge" else typ
        self._key = mmap_key(metric_name, name, labelnames, labelvalues, help_text)
        self._value = 0.0
        with self._lock:
            self._reopen_after_fork()
            self._begin()
            self._values.append(self)

    def inc(self, amount: float) -> None:
        """Add to the value."""
        with self._lock:
            self._reopen_after_fork()
            self._value += amount
            self._file.write_value(self._key, self._value, 0.0)

    def set(self, value: float, timestamp: float | None = None) -> None:
        """Replace the value."""
        with self._lock:
            self._reopen_after_fork()
            self._value = value
            self._file.write_value(self._key, value, timestamp or 0.0)

    def get(self) -> float:
        """Return this process's value."""
        with self._lock:
            self._reopen_after_fork()
            return self._value

    def set_exemplar(self, exemplar: Any) -> None:
        """Do nothing: files have no exemplars."""

    def get_exemplar(self) -> None:
        """Return None: files have no exemplars."""

    def _begin(self) -> None:
        if self._kind not in self._files:
            folder = os.environ.get(MULTIPROC_DIR)
            path = Path(folder) / f"{self._kind}_{self._owner}.db" if folder else None
            self._files[self._kind] = CounterFile(path)
        self._file = self._files[self._kind]
        self._value, _ = self._file.read_value(self._key)  # type: ignore[no-untyped-call]

    @classmethod
    def _reopen_after_fork(cls) -> None:
        """Begin anew in files of the new process, after a fork."""
        if cls._owner != (owner := who_counts()):
            cls._owner = owner
            for file in cls._files.values():
                file.close()
            cls._files.clear()
            for value in cls._values:
                value._begin()


def install() -> None:
    """Make all metrics that are created from now on count in files."""
    values.ValueClass = CountedValue
    lock = CountedValue._lock
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=_begin_in_child)


def _begin_in_child() -> None:
    """Release all locks of prometheus-client. A thread that held one during the fork does not exist in this process."""
    CountedValue._lock.release()
    for holder in (REGISTRY, *REGISTRY._collector_to_names):
        if hasattr(holder, "_lock"):
            holder._lock = threading.RLock()


class CounterFile(MmapedDict):
    """The counts of one process for one type of metric: in a mapped file if it can be written, otherwise in memory."""

    def __init__(self, path: Path | None) -> None:
        """Continue the counts that the file holds. If `path` is None, count in memory only."""
        self._path = path
        self._open: IO[bytes] | None = None
        self._m: Any = bytearray(SIZE)
        self._capacity, self._used = SIZE, _HEAD
        self._positions: dict[str, int] = {}
        self._store_used(self._m)
        self._checked_at = float("-inf")
        self._check_file(adopt=True)

    def write_value(self, key: str, value: float, timestamp: float) -> None:
        """Write a count. Never raise because of the file."""
        if time.monotonic() - self._checked_at > LOOK_EVERY:
            self._check_file()
        if (place := self._positions.get(key)) is None:
            self._init_value(key)
            place = self._positions[key]
        self._m[place : place + _VALUE.size] = _VALUE.pack(value, timestamp)

    def _init_value(self, key: str) -> None:
        # Encoded as JSON, a key has at most twice its characters; see `registry` for the maximum length of a label.
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
                self._fall_back(error)
        if self._open is None:
            self._m = bytearray(self._m[: self._used]).ljust(capacity, b"\0")
        self._capacity = capacity

    def _check_file(self, *, adopt: bool = False) -> None:
        """Write the file unless it exists. If `adopt` is true, take over the counts that an existing file holds."""
        self._checked_at = time.monotonic()
        if self._path is None or (self._open is not None and self._is_there(self._open)):
            return
        file: IO[bytes] | None = None
        try:
            make_folder(self._path.parent)
            file = self._path.open("a+b")  # stays open until `close`
            mapped = _mapped(file, max(self._capacity, os.fstat(file.fileno()).st_size))
            if adopt:
                self._adopt(mapped)
            mapped[_HEAD : self._used] = self._m[_HEAD : self._used]
            self._store_used(mapped)
        except Exception as error:  # caused by a file that others may have written, too
            if file is not None:
                file.close()
            self._fall_back(error)
            return
        self._release()
        self._open, self._m, self._capacity = file, mapped, len(mapped)

    def _adopt(self, mapped: mmap.mmap) -> None:
        """Take over the counts of a file. Raises ValueError if the file was truncated."""
        used = _USED.unpack_from(mapped)[0]
        if used > len(mapped):
            raise ValueError("it was cut off")
        if used > _HEAD:
            content = bytearray(mapped[:])
            reader = CounterFile(None)
            reader._m, reader._used = content, used
            self._positions = {key: place for key, _, _, place in reader._read_all_values()}  # type: ignore[no-untyped-call]
            self._m, self._used, self._capacity = content, used, len(content)

    def _is_there(self, file: IO[bytes]) -> bool:
        try:
            return self._path is not None and os.path.samestat(self._path.stat(), os.fstat(file.fileno()))
        except OSError:
            return False

    def _fall_back(self, error: Exception) -> None:
        """Continue in memory after an error of the file."""
        if self._open is not None:
            memory = bytearray(self._m[:])
            self._release()
            self._m, self._capacity = memory, len(memory)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        _limited_log.warning(
            "could not write this process's metrics to %s (%s); its latest counts are not served until that works; "
            "tasks are not affected. Free space there, or set %s to another folder",
            self._path, reason, MULTIPROC_DIR,
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
    """Map a file with all blocks allocated. A block that is not allocated would cause a SIGBUS if the disk is full."""
    os.posix_fallocate(file.fileno(), 0, size)
    return mmap.mmap(file.fileno(), size)
