"""Celery messages for attempts, as small as Celery takes them: a million that wait are half a GB in Redis.

`apply_async` makes and sends some 1,500 messages a second, of 1,200 bytes each. A scanner has to send a thousand at
once, so here they are put together from texts. What a worker has made of one again (`remake`) has all that a message of
Celery's has: for each actor Celery and kombu make one, once.

Messages are signed if Redis is one that others can write to: by a keyed hash (HMAC-SHA256) over the task, the message's
id, and what else is read of it. The id of an attempt's message names the task to run, the pass and the time, so none of
these can be forged, nor put into another actor's queue.

Promises: without the key nobody makes a message that a worker takes. It doesn't promise that a message is taken once:
one that was seen can be put into its queue again. For an attempt its pass is stale by then; a nudge has a worker look
for what is overdue; a sweep is taken until it expires.

Several keys let them be changed while the cluster runs: the first signs, all verify.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from recovery.records.ids import is_pass, is_record_id
from recovery.settings import Settings
from recovery.store import Queued

NUDGE = "recovery.nudge"
"""The task that has a worker scan, and the queue that it is in."""
SWEEP, SPARK_QUEUE = "recovery.sweep", "spark"
"""The task that is a sweep, and the queue that it is in."""

HEADER = "signature"
"""The header of a message's signature. Workers without a key don't look at it."""


class Signer:
    """Signs and verifies. Without keys nothing is signed, and everything passes."""

    def __init__(self, keys: Sequence[str] = (), *, accept_unsigned: bool = False) -> None:
        self._keys = [key.encode() for key in keys]
        self._accept_unsigned = accept_unsigned or not keys

    @property
    def signs(self) -> bool:
        return bool(self._keys)

    def sign(self, task: str, message_id: str, rest: str = "") -> str:
        """The signature by the first key."""
        return _digest(self._keys[0], task, message_id, rest)

    def is_good(self, signature: object, task: str, message_id: str, rest: str = "") -> bool:
        """Whether this is a signature by one of the keys; or there is none, and none is needed."""
        if signature is None or not self._keys:
            return self._accept_unsigned
        if not isinstance(signature, str) or not signature.isascii():
            return False
        return any(hmac.compare_digest(signature, _digest(key, task, message_id, rest)) for key in self._keys)


UNSIGNED = Signer()


def signer(settings: Settings) -> Signer:
    """By the keys of these settings."""
    keys = settings.message_key.get_secret_value().split(",") if settings.message_key is not None else []
    return Signer(keys, accept_unsigned=settings.accept_unsigned)


def _digest(key: bytes, task: str, message_id: str, rest: str) -> str:
    # No text of ours has a line's end in it; a surrogate of a stranger's must not end a worker.
    return hmac.digest(key, f"{task}\n{message_id}\n{rest}".encode(errors="replace"), "sha256").hex()


_CODED = '"content-type":"application/json","content-encoding":"utf-8"'
_FORM = re.compile("([^:]{1,100}):([^:]{1,100}):([0-9]{1,14})")
"""Of a message's id. Fourteen digits of milliseconds go to the year 5138: no date is too far off to be read."""


def encode(queued: Queued, signer: Signer = UNSIGNED) -> str:
    """The Redis message that hands this decision to its actor, signed if there is a key.

    Its arguments are the decision's id and the pass. Its id is theirs as well, so that a worker's parent process
    can tell from it what its children run, and how old the messages are that it takes; see `parse_id`.
    """
    age = 0 if queued.first else _milliseconds(queued.queued_at)
    key, pass_key, (headers, to) = queued.id, queued.pass_key, _of_actor(queued.actor)
    # The pass is new for every enqueue but shared by a batch; with the task it names the message. Both are of letters,
    # digits and a slash: nothing to escape.
    name = f"{key}:{pass_key}:{age}"
    signature = f'"{HEADER}":"{signer.sign(queued.actor, name)}",' if signer.signs else ""
    return (
        f'{{"body":"[[\\"{key}\\",\\"{pass_key}\\"],{{}},{{}}]",{_CODED},{headers}{signature}"id":"{name}"}},'
        f'"properties":{{{to},"delivery_tag":"{name}"}}}}'
    )


@lru_cache(maxsize=8)
def _milliseconds(moment: datetime) -> int:
    """Since 1970. Of a batch it is the same for all."""
    return round(moment.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class MessageId:
    """What a message's id tells: its decision, the pass, and when it was queued by the database's clock.

    The time is None for a message that was put first in line: it tells nothing of how far the line has got.
    """

    decision_id: str
    pass_key: str
    queued_at: datetime | None


def parse_id(message_id: object) -> MessageId | None:
    """What the id of one of our messages tells; None for everything that is not exactly of its form."""
    if type(message_id) is not str or not (found := _FORM.fullmatch(message_id)):
        return None
    decision_id, pass_key, milliseconds = found.groups()
    if not (is_record_id(decision_id) and is_pass(pass_key)):
        return None
    queued_at = datetime.fromtimestamp(int(milliseconds) / 1000, UTC) if int(milliseconds) else None
    return MessageId(decision_id, pass_key, queued_at)


def id_of(text: bytes) -> MessageId | None:
    """The same of a message as it lies in Redis; None for what is none of ours."""
    try:
        return parse_id(json.loads(text)["headers"]["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def remake(task: str, message_id: str, args: list[Any], kwargs: dict[str, Any], queue: str, tag: str) -> dict[str, Any]:
    """A message as a worker's Celery takes it, of nothing but these. `tag` is what it is acknowledged by."""
    payload, rest_of_body = _prototype(task)
    headers = {**payload["headers"], "id": message_id, "root_id": message_id}
    properties = {
        **payload["properties"],
        "correlation_id": message_id,
        "delivery_tag": tag,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "body_encoding": "utf-8",
    }
    body = f"[{json.dumps(args)}, {json.dumps(kwargs)}, {rest_of_body}]"
    return {**payload, "headers": headers, "properties": properties, "body": body}


@lru_cache(maxsize=4096)
def _of_actor(actor: str) -> tuple[str, str]:
    name = json.dumps(actor)
    return f'"headers":{{"task":{name},', f'"delivery_info":{{"exchange":"","routing_key":{name}}}'


@lru_cache(maxsize=4096)
def _prototype(actor: str) -> tuple[dict[str, Any], str]:
    """Celery's own message for `actor`, and the JSON of its body's third part."""
    # Only workers take messages; what reads or sends them does without Celery's modules.
    from kombu import Connection
    from kombu.serialization import dumps

    from recovery.queue.celery_app import OwnCelery

    app = OwnCelery(set_as_current=False)
    task = app.amqp.as_task_v2("", actor, args=(), kwargs={}, origin="recovery", argsrepr="()")
    content_type, encoding, text = dumps(task.body, serializer="json")
    with Connection("memory://") as connection:
        channel = connection.default_channel
        payload = channel.prepare_message(text, 0, content_type, encoding, task.headers, task.properties)
        channel._inplace_augment_message(payload, "", actor)
    return payload, json.dumps(task.body[2])
