"""Check every text that a worker takes from Redis: make a new message of its valid parts, or refuse it.

`recovery.queue.untrusted` reads the texts. A text that is refused is gone: it was taken from its queue, and is stored
nowhere. If it stood for a task, that task is queued in MongoDB, and is found as MESSAGE_LOST. The log shows the queue
and the reason, and nothing of the text; `recovery_messages_refused_total` counts all refusals. `MessageIntake.said`
logs whatever other programs have put into Redis, here and in `transport`: at most one line of a kind per second.

Slots take messages from Redis as well, past Celery, as hints for what they do next (`hints`). These are checked in the
same way as messages that Celery takes.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from recovery import metrics
from recovery.errors import BrokerError
from recovery.log_lines import Seldom
from recovery.queue import Broker, MessageId, Signer, remake, untrusted
from recovery.queue.message import NUDGE, SPARK_QUEUE, SWEEP
from recovery.queue.untrusted import MessageRefusal, MessageRefused

log = logging.getLogger(__name__)

Message = dict[str, Any]

CONTROL = "control"
"""The name of the remote control channel in the log."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REPLIES = "reply.celery.pidbox"


class MessageIntake:
    """The messages that one worker accepts: for attempts of these actors, nudges, sweeps if it runs them, and remote
    control commands that it obeys.

    Not thread-safe, except `hint`, because only a worker's event loop takes messages.
    """

    def __init__(self, actors: Iterable[str], commands: Iterable[str], signer: Signer, *, sweeps: bool) -> None:
        self._signer = signer
        self._kinds: dict[str, Callable[[bytes], Message]] = {actor: self._attempt_of(actor) for actor in actors}
        self._kinds[NUDGE] = self._nudge
        if sweeps:
            self._kinds[SPARK_QUEUE] = self._sweep
        self._commands = frozenset(commands)
        # Our own tags, because a tag in a text may be another message's, and messages are acknowledged by their tags.
        self._tags = map(str, itertools.count(1))
        self.said = Seldom(log)

    def take(self, queue: str, text: bytes) -> Message | None:
        """Return the message for a text from this queue; None if it is refused. Do not raise."""
        try:
            kind = self._kinds.get(queue)
            if kind is None:
                raise MessageRefused(MessageRefusal.OTHER_TASK)  # not a queue of ours
            # The text is kept unchanged, so that it can be put back.
            return {**kind(text), "text": text}
        except MessageRefused as refused:
            self._refuse(queue, refused.reason)
        return None

    def hint(self, queue: str, text: bytes) -> MessageId | None:
        """Return the decision and the pass that a text from an actor's queue names; None if it is refused. Do not
        raise."""
        try:
            return untrusted.attempt(text, queue, self._signer)[1]
        except MessageRefused as refused:
            self._refuse(queue, refused.reason)
        return None

    def command(self, text: bytes) -> Message | None:
        """Return the message for a broadcast text; None if it is refused. Do not raise."""
        try:
            return self._command(text)
        except MessageRefused as refused:
            self._refuse(CONTROL, refused.reason)
        return None

    def _attempt_of(self, actor: str) -> Callable[[bytes], Message]:
        def attempt(text: bytes) -> Message:
            message_id, hint = untrusted.attempt(text, actor, self._signer)
            return remake(actor, message_id, [hint.decision_id, hint.pass_key], {}, actor, next(self._tags))

        return attempt

    def _nudge(self, text: bytes) -> Message:
        untrusted.nudge(text, NUDGE, self._signer)
        return remake(NUDGE, str(uuid.uuid4()), [], {}, NUDGE, next(self._tags))

    def _sweep(self, text: bytes) -> Message:
        repair, every = untrusted.sweep(text, SWEEP, self._signer)
        kwargs = {"repair": repair, "every": every}
        return remake(SWEEP, str(uuid.uuid4()), [], kwargs, SPARK_QUEUE, next(self._tags))

    def _command(self, text: bytes) -> Message:
        command = untrusted.decode_body(untrusted.parse(text))
        if not isinstance(command, dict) or not isinstance(command.get("method"), str):
            raise MessageRefused(MessageRefusal.MALFORMED)
        if command["method"] not in self._commands:
            raise MessageRefused(MessageRefusal.COMMAND)
        body = {"method": command["method"], "arguments": {}, **_destination(command), **_reply(command)}
        return {
            "body": json.dumps(body),
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {},
            "properties": {"delivery_tag": next(self._tags), "delivery_info": {"exchange": "", "routing_key": ""}},
        }

    def _refuse(self, queue: str, reason: MessageRefusal) -> None:
        metrics.REFUSED.labels(reason.value).inc()
        self.said.warning("a message in %s is none of ours and is discarded: %s", queue, reason.value)


def _destination(command: Mapping[str, Any]) -> Message:
    """Return to which workers a command goes. Patterns are refused, because one might take for ever to match."""
    if command.get("pattern") is not None or command.get("matcher") is not None:
        raise MessageRefused(MessageRefusal.COMMAND)
    match command.get("destination"):
        case None:
            return {}
        case [*names] if all(isinstance(name, str) for name in names):
            return {"destination": names}
    raise MessageRefused(MessageRefusal.MALFORMED)


def _reply(command: Mapping[str, Any]) -> Message:
    """Return where the answer to a command goes: only to a queue of answers, whatever the text says."""
    match command:
        case {"reply_to": {"routing_key": str(key)}, "ticket": str(ticket)}:
            if _UUID.fullmatch(key) and _UUID.fullmatch(ticket):
                return {"reply_to": {"exchange": _REPLIES, "routing_key": key}, "ticket": ticket}
        case _ if command.get("reply_to") is None and command.get("ticket") is None:
            return {}
    raise MessageRefused(MessageRefusal.MALFORMED)


def hints(
    broker: Broker, intake: MessageIntake, may_take: Callable[[], bool] = lambda: True
) -> Callable[[str, int], Sequence[MessageId]]:
    """Return a function that takes up to a number of messages from a queue.

    The function returns no messages if Redis is away, which Celery notices and logs, or if `may_take` returns False.
    """

    def take(queue: str, count: int) -> list[MessageId]:
        if not may_take():
            return []
        try:
            texts = broker.pop(queue, count)
        except BrokerError as error:
            log.debug("no more messages of %s (%s)", queue, error)
            return []
        return [hint for text in texts if (hint := intake.hint(queue, text)) is not None]

    return take
