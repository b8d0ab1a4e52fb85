"""A beat's scheduler and signal handlers: it logs an outage of Redis once, signs its messages, and keeps queues short.

Celery's own scheduler logs a traceback for each message that it can't send, which is one per nudge. This scheduler logs
one line when an outage begins, and one when it is over. It keeps no file, because two beats could not share one, and a
nudge that was not sent is not needed later.

If there is a message key, beat signs what it sends, because workers then accept only signed nudges and sweeps.
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
"""Maximum number of waiting nudges. Each makes one worker scan. One would be enough; several make several workers scan
after an outage."""


class QuietScheduler(Scheduler):  # type: ignore[misc]
    """A scheduler that drops messages that it can't send. The next message is sent when it is due."""

    _failed_since: float | None = None
    _failed = 0

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send one message. Do not raise."""
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except SchedulingError as error:
            self._note_failure(entry, error)
        else:
            self._note_success()

    def _note_failure(self, entry: ScheduleEntry, error: SchedulingError) -> None:
        self._failed += 1
        if self._failed_since is None:
            self._failed_since = time.monotonic()
            # The error's message names the entry and the cause. A traceback would only show kombu's frames.
            log.error("%s; beat tries again with each message that is due, and logs when one is sent", _one_line(error))
        else:
            log.debug("%s was not sent again", entry.name)

    def _note_success(self) -> None:
        if self._failed_since is not None:
            lasted = time.monotonic() - self._failed_since
            # As a warning, because beat's default log level hides anything less, and readers of the first line need
            # this one.
            log.warning("messages are sent again, after %.0f s and %d unsent messages", lasted, self._failed)
            self._failed_since, self._failed = None, 0


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def sign(signer: Signer) -> Callable[..., None]:
    """Return a handler that signs nudges and sweep requests. For the signal `before_task_publish`."""

    def add_signature(sender: str, body: Any, headers: dict[str, Any], **_: Any) -> None:
        if signer.signs and sender in (NUDGE, SWEEP):
            arguments = [body[1].get(name) for name in ("repair", "every")]
            signed_terms = sweep_terms(headers["expires"], *arguments) if sender == SWEEP else ""
            headers[HEADER] = signer.sign(sender, headers["id"], signed_terms)

    return add_signature


def keep_short(app: Recovery) -> Callable[..., None]:
    """Return a handler that trims a queue to its last NUDGES_KEPT messages after beat sent a nudge or a sweep request
    to it, and records the nudge. For the signal `after_task_publish`."""

    # not app.resources, because a beat needs no MongoDB
    broker, limited_log = Broker(app.settings.broker_url), Seldom(log)

    def trim(sender: str | None = None, **_: Any) -> None:
        if (queue := {NUDGE: NUDGE, SWEEP: SPARK_QUEUE}.get(sender or "")) is not None:
            try:
                broker.cut(queue, NUDGES_KEPT)
                if queue == NUDGE:
                    broker.note_nudge()
            except BrokerError as error:
                limited_log.warning("could not trim %s (%s); retried after the next message", queue, error)

    return trim
