"""The settings that operators change at run time, cached in each operating-system process for at most REFRESH seconds.

Every step reads its settings here. So a change reaches running workers, their pool processes and clients within
seconds, without a query for each task: whoever asks first after REFRESH seconds runs one query. While the database is
away, the last known settings apply. If they were never read, methods that could allow something raise StoreError.

Whoever learns of a change calls `invalidate`. Then this process and all processes that were forked from it read the
settings again when they next ask. So once a worker's parent has read that an actor is blocked, no pool process begins
one of its tasks.
"""

from __future__ import annotations

import logging
import mmap
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

import pymongo

from recovery.errors import StoreError
from recovery.records import ActorPreferences, ProcessTypePreferences, Stored, TypeDisabled
from recovery.records.preferences import FailureAction
from recovery.store.driver_errors import translated
from recovery.store.lifecycle.actors import Actors, ProcessTypes

log = logging.getLogger(__name__)

T = TypeVar("T")

REFRESH = 2.0
"""Seconds for which settings are cached, unless `invalidate` is called."""
REFRESH_BLOCKED = 0.1
"""The same for a blocked actor or a disabled type. Shorter, because a message of the actor arrived, so it may have been
unblocked just now.
"""
ANSWER_TIMEOUT = 2.0
"""Maximum seconds that a refresh may take, because a task waits for it."""

MAX_READS = 3
"""Maximum number of reads for one answer, if `invalidate` is called during each read."""

_news = mmap.mmap(-1, 8)
"""The time of the last `invalidate`, in memory shared with forked processes. A value that is read while it is being
written is torn, and so differs from every known value, which only causes another read.
"""


@dataclass(frozen=True, slots=True)
class _Actors:
    """The settings of all actors."""

    stored: Mapping[str, Stored[ActorPreferences]] = field(default_factory=dict)
    """{actor: its settings}."""
    task_timeouts: Mapping[str, float] = field(default_factory=dict)
    """{actor: its task_timeout in seconds}, of those that have one."""


@dataclass(frozen=True, slots=True)
class _ProcessTypes:
    """The settings of all process types."""

    stored: Mapping[str, Stored[ProcessTypePreferences]] = field(default_factory=dict)
    """{process type: its settings}."""
    timeouts: Mapping[str, float] = field(default_factory=dict)
    """{process type: its process_timeout in seconds}, of those that have one."""


@translated
class CurrentPreferences:
    """The settings that apply now. Thread-safe; two threads that ask at the same time may both read."""

    def __init__(self, actors: Actors, process_types: ProcessTypes) -> None:
        self._actors = _Cached(lambda: _of_actors(actors), _Actors())
        self._process_types = _Cached(lambda: _of_process_types(process_types), _ProcessTypes())

    def actor(self, code: ActorPreferences) -> ActorPreferences:
        """Return the effective settings of an actor whose code declares `code`."""
        stored = self._actors.get().stored.get(code.id)
        return stored.over(code) if stored else code

    def process_type(self, code: ProcessTypePreferences) -> ProcessTypePreferences:
        """Return the effective settings of a process type whose code declares `code`."""
        stored = self._process_types.get().stored.get(code.id)
        return stored.over(code) if stored else code

    def process_type_named(self, name: str) -> ProcessTypePreferences:
        """Return the stored settings of a process type whose code is not in this process; the defaults if it is
        unknown.
        """
        stored = self._process_types.get().stored.get(name)
        return stored.effective if stored else ProcessTypePreferences(id=name)

    def disabled(self, process_type: str) -> TypeDisabled | None:
        """Return who has disabled this process type and why, or None if it is enabled.

        Raises:
            StoreError: The settings could never be read.
        """
        stored = self._process_types.known().stored.get(process_type)
        if stored is None or stored.disabled is None:
            return None
        stored = self._process_types.get(REFRESH_BLOCKED).stored.get(process_type)
        return stored.disabled if stored is not None else None

    def failure_action(self, process_type: str) -> FailureAction:
        """Return what happens when a process of this type breaks.

        Raises:
            StoreError: The settings could never be read.
        """
        stored = self._process_types.known().stored.get(process_type)
        if stored is None:  # its worker may have saved it just now
            stored = self._process_types.get(0.0).stored.get(process_type)
        return FailureAction.OFF if stored is None else stored.effective.failure_action

    def is_blocked(self, actor: str) -> bool:
        """Return whether this actor is blocked, so that none of its tasks may begin.

        Raises:
            StoreError: The settings could never be read.
        """
        stored = self._actors.known().stored.get(actor)
        if stored is None or not stored.blocked:
            return False
        stored = self._actors.get(REFRESH_BLOCKED).stored.get(actor)
        return stored is not None and stored.blocked

    def told_actors(self) -> Collection[str]:
        """Return the names of all actors that a worker has registered."""
        return self._actors.get().stored.keys()

    def task_timeouts(self) -> Mapping[str, float]:
        """Return {actor: its task_timeout in seconds}, of those that have one."""
        return self._actors.get().task_timeouts

    def process_timeouts(self) -> Mapping[str, float]:
        """Return {process type: its process_timeout in seconds}, of those that have one."""
        return self._process_types.get().timeouts

    @staticmethod
    def invalidate() -> None:
        """Make the next caller read the settings again, in this process and in all that share its memory by a fork."""
        _news[:] = time.monotonic_ns().to_bytes(len(_news), "little")


class _Cached(Generic[T]):
    """The cached result of a query. Only one thread reads at a time, so an older result never replaces a newer one."""

    def __init__(self, load: Callable[[], T], unknown: T) -> None:
        self._load, self._value, self._unknown = load, unknown, unknown
        self._reading = Lock()
        self._news_read = _news[:]
        self._read_at = float("-inf")
        self._error: StoreError | None = None

    def get(self, refresh: float | None = None) -> T:
        """Return the cached value; read it first if it is older than `refresh` seconds or than the last `invalidate`.

        If `invalidate` is called during the read, the value is read again. So a caller that asked before `invalidate`
        does not go on with an outdated value.
        """
        refresh = REFRESH if refresh is None else refresh
        for _ in range(MAX_READS):
            if self._is_old(refresh):
                self._read_or_leave(refresh)
            if self._news_read == _news[:]:
                break
        return self._value

    def _read_or_leave(self, refresh: float) -> None:
        # If the cached value may still be used, only the first caller reads, and the others do not wait.
        """Read the value if no other thread does. Wait for the other thread if the cached value is missing or known to
        be outdated.
        """
        must_wait = self._value is self._unknown or self._news_read != _news[:]
        if self._reading.acquire(blocking=must_wait):
            try:
                if self._is_old(refresh):
                    self._read()
            finally:
                self._reading.release()

    def known(self) -> T:
        """Return the value like `get`. Raise the StoreError of the failed read if the value was never read."""
        value = self.get()
        if value is self._unknown and self._error is not None:
            raise self._error
        return value

    def _is_old(self, refresh: float) -> bool:
        """Return whether the cached value is older than `refresh` seconds or than the last `invalidate`."""
        return time.monotonic() - self._read_at >= refresh or self._news_read != _news[:]

    def _read(self) -> None:
        """Read the value. If the read fails, keep the old value and log a warning."""
        heard, self._read_at = _news[:], time.monotonic()
        try:
            with pymongo.timeout(ANSWER_TIMEOUT):
                self._value = self._load()
            self._error = None
        except StoreError as error:
            self._read_at, self._error = time.monotonic(), error
            log.warning("could not read the settings (%s): the last known settings apply", error)
        # Set only after the read: otherwise callers during the read would not wait for it. Set after a failure as well,
        # so that not every task waits for a failing read.
        self._news_read = heard


def _of_actors(actors: Actors) -> _Actors:
    stored = actors.stored()
    timeouts = {name: settings.effective.task_timeout for name, settings in stored.items()}
    return _Actors(stored, {name: seconds for name, seconds in timeouts.items() if seconds})


def _of_process_types(process_types: ProcessTypes) -> _ProcessTypes:
    stored = process_types.stored()
    timeouts = {name: settings.effective.process_timeout for name, settings in stored.items()}
    return _ProcessTypes(stored, {name: seconds for name, seconds in timeouts.items() if seconds})
