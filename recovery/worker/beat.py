"""What beat sends and when, as Celery has it, but for what is said while Redis is away.

Celery's own scheduler logs a traceback for each message that it can't send: with a nudge a second, thousands of lines
for an outage of minutes. Here it is one line when the outage begins, and one when it is over. Nothing is kept in a
file, which two beats could not share: a nudge that was not sent is not wanted later.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from celery.beat import ScheduleEntry, Scheduler, SchedulingError

log = logging.getLogger(__name__)


class QuietScheduler(Scheduler):  # type: ignore[misc]
    """Sends what is due; a message that can't be sent is dropped, and the next one is sent when it is due."""

    _failed_since: float | None = None
    _failed = 0

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send one message. Does not raise."""
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except SchedulingError as error:
            self._fails(entry, error)
        else:
            self._succeeds()

    def _fails(self, entry: ScheduleEntry, error: SchedulingError) -> None:
        self._failed += 1
        if self._failed_since is None:
            self._failed_since = time.monotonic()
            # Its message names the entry and the cause; raised from there on, it would be all of kombu's frames.
            log.error("%s; tried again when it is due, nothing more is said until it is sent", _line(error))
        else:
            log.debug("%s was not sent again", entry.name)

    def _succeeds(self) -> None:
        if self._failed_since is not None:
            lasted = time.monotonic() - self._failed_since
            # As a warning, since beat shows no less by default: who read of the outage is to read of its end.
            log.warning("messages are sent again, after %.0f s and %d that were not", lasted, self._failed)
            self._failed_since, self._failed = None, 0


def _line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
