"""The database's time, by which deadlines are set and compared. A worker's clock may be wrong."""

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
"""Seconds for which this machine's monotonic clock may extrapolate the database's answer."""
SOON = 0.02
"""Maximum seconds that an answer may take if it is to be extrapolated. The extrapolated time is early by at most this.
"""


def told_by(database: Database[Document]) -> datetime:
    """Return the server's time (command `hello`)."""
    # By default pymongo decodes the replies of commands to naive times.
    hello = database.command("hello", codec_options=database.codec_options)
    return cast(datetime, hello["localTime"])


@dataclass(frozen=True, slots=True)
class _Answer:
    """The database's time, as it answered at one moment."""

    time: datetime
    at: float
    """When the answer arrived here, by the monotonic clock."""

    def by(self, moment: float) -> datetime:
        """Return a time that the database has reached at this moment of the monotonic clock.

        It is early by the time that the answer took to arrive.
        """
        passed = self.time + timedelta(seconds=moment - self.at)
        return passed.replace(microsecond=passed.microsecond // 1000 * 1000)  # MongoDB stores milliseconds


@translated
class DatabaseClock:
    """The clock of one database. Thread-safe."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._last_answer: _Answer | None = None
        self._one_at_a_time = Lock()

    def now(self) -> datetime:
        """Ask the database for its time, and return it."""
        return self._ask().time

    def at_least(self) -> datetime:
        """Return a time that the database has reached, usually without a round trip.

        The result is the database's answer of at most VALID seconds ago, plus the time that passed here since. It is
        early by at most SOON seconds, or by the duration of the answer if the database had to be asked, and never
        before a time that `now` returned. It is late only if the database's clock was set back, or if another server
        has become primary.
        """
        answer, moment = self._last_answer, time.monotonic()
        if answer is None or moment - answer.at > VALID:
            return self._ask().time
        return answer.by(moment)

    def _ask(self) -> _Answer:
        asked = time.monotonic()
        answer = _Answer(told_by(self._database), time.monotonic())
        with self._one_at_a_time:
            known = self._last_answer
            if known is None or answer.at - known.at > VALID:
                is_better = answer.at - asked <= SOON
            else:
                is_better = answer.time >= known.by(answer.at)
            if is_better:
                self._last_answer = answer
        return answer
