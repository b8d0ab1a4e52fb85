"""The settings that operators change at run time, as a process of ours knows them: never older than REFRESH.

Every step asks here, so a change reaches running workers, their pool children and whoever starts processes within
seconds and without a query per task: one query, by whoever asks after REFRESH is over. While the database is away
what was known last holds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

import pymongo
from pymongo.errors import PyMongoError

from recovery.records import ActorPreferences, ProcessTypePreferences, Stored
from recovery.store.actors import Actors, ProcessTypes

log = logging.getLogger(__name__)

T = TypeVar("T")

REFRESH = 2.0
"""Seconds that what was read holds: with a heartbeat's interval, a change is everywhere within some four seconds."""
REFRESH_BLOCKED = 0.1
"""The same for an actor that is blocked: its worker was given a message, so it may have been unblocked just now."""
ANSWER_WITHIN = 2.0
"""Seconds that a refresh may take; a task is waiting for it."""


@dataclass(frozen=True, slots=True)
class _Actors:
    stored: Mapping[str, Stored[ActorPreferences]] = field(default_factory=dict)
    task_timeouts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ProcessTypes:
    stored: Mapping[str, Stored[ProcessTypePreferences]] = field(default_factory=dict)
    timeouts: Mapping[str, float] = field(default_factory=dict)


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

    def is_blocked(self, actor: str) -> bool:
        """Whether no task of this actor may be begun."""
        stored = self._actors.get().stored.get(actor)
        if stored is None or not stored.blocked:
            return False
        stored = self._actors.get(REFRESH_BLOCKED).stored.get(actor)
        return stored is not None and stored.blocked

    def task_timeouts(self) -> Mapping[str, float]:
        """{actor: its task_timeout}, of those that have one."""
        return self._actors.get().task_timeouts

    def process_timeouts(self) -> Mapping[str, float]:
        """{process type: its process_timeout}, of those that have one."""
        return self._process_types.get().timeouts

    def forget(self) -> None:
        """Read anew when asked next."""
        self._actors.forget()
        self._process_types.forget()


class _Kept(Generic[T]):
    """What a query gave, kept for a while."""

    def __init__(self, load: Callable[[], T], unknown: T) -> None:
        self._load, self._value, self._unknown = load, unknown, unknown
        self._first = Lock()
        """Whoever asks while nothing is known yet waits for the answer; later the last known does meanwhile."""
        self._asked = float("-inf")

    def get(self, refresh: float = REFRESH) -> T:
        """The value, read again if it is older than so many seconds."""
        with self._first if self._value is self._unknown else nullcontext():
            self._refresh(refresh)
        return self._value

    def _refresh(self, refresh: float) -> None:
        if time.monotonic() - self._asked >= refresh:
            self._asked = time.monotonic()
            try:
                with pymongo.timeout(ANSWER_WITHIN):
                    self._value = self._load()
            except PyMongoError as error:
                self._asked = time.monotonic()
                log.warning("settings not read (%s): those known last hold", error)

    def forget(self) -> None:
        """Read anew when asked next."""
        self._asked = float("-inf")


def _of_actors(actors: Actors) -> _Actors:
    stored = actors.stored()
    timeouts = {name: one.effective.task_timeout for name, one in stored.items()}
    return _Actors(stored, {name: seconds for name, seconds in timeouts.items() if seconds})


def _of_process_types(process_types: ProcessTypes) -> _ProcessTypes:
    stored = process_types.stored()
    timeouts = {name: one.effective.process_timeout for name, one in stored.items()}
    return _ProcessTypes(stored, {name: seconds for name, seconds in timeouts.items() if seconds})
