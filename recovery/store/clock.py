"""The database's time, which deadlines are set and compared by; a worker's clock may be wrong."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock
from typing import cast

from pymongo.database import Database

from recovery.store.client import Document
from recovery.store.driver_errors import translated

VALID = 1.0
"""Seconds for which an answer of the database is continued by this machine's clock."""
SOON = 0.02
"""Seconds within which an answer must come to be continued: the time is early by at most that."""


def told_by(database: Database[Document]) -> datetime:
    """Ask the server for its time."""
    # Commands decode with pymongo's defaults, whose times are naive, unless told otherwise.
    hello = database.command("hello", codec_options=database.codec_options)
    return cast(datetime, hello["localTime"])


@dataclass(frozen=True, slots=True)
class _Told:
    time: datetime
    at: float
    """When that was heard here, by the monotonic clock."""

    def by(self, moment: float) -> datetime:
        """The time that it is by then, at least: it went on while the answer was under way, too."""
        passed = self.time + timedelta(seconds=moment - self.at)
        return passed.replace(microsecond=passed.microsecond // 1000 * 1000)  # as a record has it


@translated
class DatabaseClock:
    """The time of one database. For any number of threads."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._told: _Told | None = None
        self._one_at_a_time = Lock()

    def now(self) -> datetime:
        """Ask the database for its time."""
        return self._ask().time

    def at_least(self) -> datetime:
        """Return a time that the database has reached, mostly without a round trip: its time of at most a second ago,
        and what has passed here since.

        It is early by at most 20 ms, or by the time of an answer if the database had to be asked, and never before what
        `now` returned. It is late only if the database's clock was set back, or another server is the primary now. To
        ask would cost some milliseconds while other threads compute.
        """
        told, moment = self._told, time.monotonic()
        if told is None or moment - told.at > VALID:
            return self._ask().time
        return told.by(moment)

    def _ask(self) -> _Told:
        asked = time.monotonic()
        told = _Told(told_by(self._database), time.monotonic())
        with self._one_at_a_time:
            known = self._told
            if known is None or told.at - known.at > VALID:
                is_better = told.at - asked <= SOON
            else:
                is_better = told.time >= known.by(told.at)
            if is_better:
                self._told = told
        return told
