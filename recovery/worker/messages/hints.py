"""Messages that a slot takes from Redis itself, past Celery: hints for what it does next. They are believed as little
as those that Celery takes (`intake`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from recovery.errors import BrokerError
from recovery.queue import Broker, MessageId
from recovery.worker.messages.intake import Intake

log = logging.getLogger(__name__)


def hints(
    broker: Broker, intake: Intake, may_take: Callable[[], bool] = lambda: True
) -> Callable[[str, int], Sequence[MessageId]]:
    """What takes up to so many messages from a queue; none where Redis is away: Celery finds and tells that. And none
    where none may be taken any more."""

    def take(queue: str, count: int) -> list[MessageId]:
        if not may_take():
            return []
        try:
            texts = broker.pop(queue, count)
        except BrokerError as error:
            log.debug("no more messages of %s (%s)", queue, error)
            return []
        return [told for text in texts if (told := intake.hint(queue, text)) is not None]

    return take
