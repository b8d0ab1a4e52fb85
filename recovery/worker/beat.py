"""What beat adds to Celery's: a scheduler that logs an outage of Redis once, signed messages, and short queues.

Celery's own scheduler logs a traceback for each message that it can't send: with a nudge a second, thousands of lines
for an outage of minutes. Here it is one line when the outage begins, and one when it is over. Nothing is kept in a
file, which two beats could not share: a nudge that was not sent is not needed later.

If there is a key, what beat sends is signed, because workers then take no other nudges and sweeps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from celery.beat import ScheduleEntry, Scheduler, SchedulingError

from recovery.engine import Recovery
from recovery.errors import BrokerError
from recovery.log_lines import Seldom
from recovery.queue import Broker, Signer
from recovery.queue.message import HEADER, NUDGE, SPARK_QUEUE, SWEEP
from recovery.queue.untrusted import sweep_terms

log = logging.getLogger(__name__)

NUDGES_KEPT = 10
"""Nudges that wait at most. One would do: it makes one worker scan; some more set several to work after an outage."""


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


def sign(signer: Signer) -> Callable[..., None]:
    """Return a handler that signs what beat sends. For the signal `before_task_publish`."""

    def add_signature(sender: str, body: Any, headers: dict[str, Any], **_: Any) -> None:
        if signer.signs and sender in (NUDGE, SWEEP):
            asked = [body[1].get(name) for name in ("repair", "every")]
            rest = sweep_terms(headers["expires"], *asked) if sender == SWEEP else ""
            headers[HEADER] = signer.sign(sender, headers["id"], rest)

    return add_signature


def keep_short(app: Recovery) -> Callable[..., None]:
    """Return a handler that leaves only the last few messages in a queue after beat sent a nudge or a request for a
    sweep. For the signal `after_task_publish`."""

    broker, said = Broker(app.settings.broker_url), Seldom(log)  # not app.resources: a beat needs no MongoDB

    def cut(sender: str | None = None, **_: Any) -> None:
        if (queue := {NUDGE: NUDGE, SWEEP: SPARK_QUEUE}.get(sender or "")) is not None:
            try:
                broker.cut(queue, NUDGES_KEPT)
                if queue == NUDGE:
                    broker.note_nudge()
            except BrokerError as error:
                said.warning("%s not cut (%s); after the next message", queue, error)

    return cut
