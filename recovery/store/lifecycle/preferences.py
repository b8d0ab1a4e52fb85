"""The settings that operators change at run time, as a process of ours knows them: never older than REFRESH.

Every step asks here, so a change reaches running workers, their pool children and whoever starts processes within
seconds and without a query per task: one query, by whoever asks after REFRESH is over. While the database is away
what was known last holds; where nothing was ever known, nothing is taken for allowed.

Who learns of a change says so (`invalidate`), and it is read anew by whoever asks next, in this process and in all that
were forked from it. So a worker whose parent has read that an actor is blocked begins no task of it in any child.
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
"""Seconds that what was read holds where nobody says that there is something new."""
REFRESH_BLOCKED = 0.1
"""The same for an actor that is blocked: its worker was given a message, so it may have been unblocked just now."""
ANSWER_TIMEOUT = 2.0
"""Seconds that a refresh may take; a task is waiting for it."""

MAX_READS = 3
"""Reads for one answer, where each was made old by a word that came while it was under way."""

_news = mmap.mmap(-1, 8)
"""When somebody last said that there is something new. In memory that processes share with those they fork; a number
that is read while it is written is one more that nobody has read by."""


@dataclass(frozen=True, slots=True)
class _Actors:
    stored: Mapping[str, Stored[ActorPreferences]] = field(default_factory=dict)
    task_timeouts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ProcessTypes:
    stored: Mapping[str, Stored[ProcessTypePreferences]] = field(default_factory=dict)
    timeouts: Mapping[str, float] = field(default_factory=dict)


@translated
class CurrentPreferences:
    """What holds now. Safe for threads; two that ask at once may both read."""

    def __init__(self, actors: Actors, process_types: ProcessTypes) -> None:
        self._actors = _Kept(lambda: _of_actors(actors), _Actors())
        self._process_types = _Kept(lambda: _of_process_types(process_types), _ProcessTypes())

    def actor(self, code: ActorPreferences) -> ActorPreferences:
        """The settings of an actor whose code says `code`."""
        stored = self._actors.get().stored.get(code.id)
        return stored.over(code) if stored else code

    def process_type(self, code: ProcessTypePreferences) -> ProcessTypePreferences:
        """The settings of a process type whose code says `code`."""
        stored = self._process_types.get().stored.get(code.id)
        return stored.over(code) if stored else code

    def process_type_named(self, name: str) -> ProcessTypePreferences:
        """The settings of a process type whose code is not here, as they are kept; the defaults, where it is not
        known."""
        stored = self._process_types.get().stored.get(name)
        return stored.effective if stored else ProcessTypePreferences(id=name)

    def disabled(self, process_type: str) -> TypeDisabled | None:
        """An operator's word that no process of this type is to be started. Raises StoreError where that could never
        be read."""
        stored = self._process_types.known().stored.get(process_type)
        if stored is None or stored.disabled is None:
            return None
        stored = self._process_types.get(REFRESH_BLOCKED).stored.get(process_type)
        return stored.disabled if stored is not None else None

    def failure_action(self, process_type: str) -> FailureAction:
        """Return what is done when a process of this type breaks.

        Raises:
            StoreError: The settings could never be read.
        """
        stored = self._process_types.known().stored.get(process_type)
        if stored is None:  # of a worker that has just told of it
            stored = self._process_types.get(0.0).stored.get(process_type)
        return FailureAction.OFF if stored is None else stored.effective.failure_action

    def is_blocked(self, actor: str) -> bool:
        """Whether no task of this actor may be begun. Raises StoreError where that could never be read."""
        stored = self._actors.known().stored.get(actor)
        if stored is None or not stored.blocked:
            return False
        stored = self._actors.get(REFRESH_BLOCKED).stored.get(actor)
        return stored is not None and stored.blocked

    def told_actors(self) -> Collection[str]:
        """Names of the actors that a worker told of."""
        return self._actors.get().stored.keys()

    def task_timeouts(self) -> Mapping[str, float]:
        """{actor: its task_timeout}, of those that have one."""
        return self._actors.get().task_timeouts

    def process_timeouts(self) -> Mapping[str, float]:
        """{process type: its process_timeout}, of those that have one."""
        return self._process_types.get().timeouts

    @staticmethod
    def invalidate() -> None:
        """Read anew when asked next: here, and in all processes that were forked from here or from where we were."""
        _news[:] = time.monotonic_ns().to_bytes(len(_news), "little")


class _Kept(Generic[T]):
    """What a query gave, kept for a while. One reads at a time, so what was read earlier never replaces what was read
    later."""

    def __init__(self, load: Callable[[], T], unknown: T) -> None:
        self._load, self._value, self._unknown = load, unknown, unknown
        self._reading = Lock()
        self._heard = _news[:]
        self._asked = float("-inf")
        self._failed: StoreError | None = None

    def get(self, refresh: float | None = None) -> T:
        """The value, read again if it is older than so many seconds, or than what was heard last: while it was read,
        too, so nobody who asked before the word goes on with what held before it."""
        refresh = REFRESH if refresh is None else refresh
        for _ in range(MAX_READS):
            if self._is_old(refresh):
                self._read_or_leave(refresh)
            if self._heard == _news[:]:
                break
        return self._value

    def _read_or_leave(self, refresh: float) -> None:
        # Where it is known that the last known does not hold, all wait for the answer; else who asks first.
        certain = self._value is self._unknown or self._heard != _news[:]
        if self._reading.acquire(blocking=certain):
            try:
                if self._is_old(refresh):
                    self._read()
            finally:
                self._reading.release()

    def known(self) -> T:
        """The same. Raises the StoreError that it could not be read for, if it never was."""
        value = self.get()
        if value is self._unknown and self._failed is not None:
            raise self._failed
        return value

    def _is_old(self, refresh: float) -> bool:
        return time.monotonic() - self._asked >= refresh or self._heard != _news[:]

    def _read(self) -> None:
        heard, self._asked = _news[:], time.monotonic()
        try:
            with pymongo.timeout(ANSWER_TIMEOUT):
                self._value = self._load()
            self._failed = None
        except StoreError as error:
            self._asked, self._failed = time.monotonic(), error
            log.warning("settings not read (%s): those known last hold", error)
        # Only now, or who asks meanwhile would not wait. After a failure as well: not each task is to wait again.
        self._heard = heard


def _of_actors(actors: Actors) -> _Actors:
    stored = actors.stored()
    timeouts = {name: one.effective.task_timeout for name, one in stored.items()}
    return _Actors(stored, {name: seconds for name, seconds in timeouts.items() if seconds})


def _of_process_types(process_types: ProcessTypes) -> _ProcessTypes:
    stored = process_types.stored()
    timeouts = {name: one.effective.process_timeout for name, one in stored.items()}
    return _ProcessTypes(stored, {name: seconds for name, seconds in timeouts.items() if seconds})
