"""The values of a worker's metrics: each process has its own, in files that the worker's parent adds up."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, ClassVar

from billiard.process import current_process
from prometheus_client import REGISTRY, values
from prometheus_client.mmap_dict import mmap_key

from recovery.worker.counting.counter_files import CounterFile
from recovery.worker.metrics_folder import FOLDER


def who_counts() -> str:
    """Name a process's files: by its pid, or in a pool by the pool's and its place in it.

    A process that takes the place of one that died goes on with its counts, so there are no more files than places.
    """
    process = current_process()
    place = getattr(process, "index", None)
    # An actor may fork, and what it forks has inherited the place.
    if place is None or os.getppid() != process._parent_pid:
        return str(os.getpid())
    return f"{process._parent_pid}-{place}"


class CountedValue:
    """One value of a metric: what prometheus-client asks of its `ValueClass`.

    Unlike prometheus-client's own, its lock is free in each process that is forked, whichever thread counted then.
    """

    _multiprocess = True
    _lock: ClassVar = threading.Lock()
    _who: ClassVar[str | None] = None
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
            self._see_who_counts()
            self._begin()
            self._values.append(self)

    def inc(self, amount: float) -> None:
        """Add to it."""
        with self._lock:
            self._see_who_counts()
            self._value += amount
            self._file.write_value(self._key, self._value, 0.0)

    def set(self, value: float, timestamp: float | None = None) -> None:
        """Replace it."""
        with self._lock:
            self._see_who_counts()
            self._value = value
            self._file.write_value(self._key, value, timestamp or 0.0)

    def get(self) -> float:
        """Return this process's value."""
        with self._lock:
            self._see_who_counts()
            return self._value

    def set_exemplar(self, exemplar: Any) -> None:
        """Do nothing: files have no exemplars."""

    def get_exemplar(self) -> None:
        """Return None: files have no exemplars."""

    def _begin(self) -> None:
        if self._kind not in self._files:
            folder = os.environ.get(FOLDER)
            path = Path(folder) / f"{self._kind}_{self._who}.db" if folder else None
            self._files[self._kind] = CounterFile(path)
        self._file = self._files[self._kind]
        self._value, _ = self._file.read_value(self._key)  # type: ignore[no-untyped-call]

    @classmethod
    def _see_who_counts(cls) -> None:
        """After a fork, begin anew in files of the new process."""
        if cls._who != (who := who_counts()):
            cls._who = who
            for file in cls._files.values():
                file.close()
            cls._files.clear()
            for value in cls._values:
                value._begin()


def install() -> None:
    """Have all metrics that are made from here on count so."""
    values.ValueClass = CountedValue
    lock = CountedValue._lock
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=_begin_in_child)


def _begin_in_child() -> None:
    """Free all locks of prometheus-client: a thread that held one when this process was forked is not here."""
    CountedValue._lock.release()
    for holder in (REGISTRY, *REGISTRY._collector_to_names):
        if hasattr(holder, "_lock"):
            holder._lock = threading.RLock()
