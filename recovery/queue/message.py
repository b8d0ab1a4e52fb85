"""Encode, sign and parse Celery messages for attempts.

Messages are as small as Celery accepts. A scanner sends a thousand at once, for which `apply_async` is too slow, so
`encode` concatenates texts. `remake` turns a text that a worker took into a complete Celery message: for each actor
Celery and kombu make one prototype, once.

If there is a key, each message is signed with a keyed hash (HMAC-SHA256) over the task, the message's id, and the rest
of what is read from it. Use a key if others can write to this Redis. The id of an attempt's message contains the
decision's id, the pass and the time, so nobody can forge these or move the message into another actor's queue.

Guarantee: without the key nobody can make a message that a worker accepts. Not guaranteed: that a message is taken only
once. Somebody who has seen a message can put it into its queue again. For an attempt its pass is stale by then; a nudge
only makes a worker look for overdue records; a sweep is accepted until it expires.

Several keys allow a change of keys while the cluster runs: the first key signs, all keys verify.
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
"""The task that makes a worker scan, and its queue."""
SWEEP, SPARK_QUEUE = "recovery.sweep", "spark"
"""The task that orders a sweep, and its queue."""

HEADER = "signature"
"""The message header that holds the signature. Workers without a key ignore it."""


class Signer:
    """A signer and verifier of messages. Without keys it signs nothing and accepts everything."""

    def __init__(self, keys: Sequence[str] = (), *, accept_unsigned: bool = False) -> None:
        self._keys = [key.encode() for key in keys]
        self._accept_unsigned = accept_unsigned or not keys

    @property
    def signs(self) -> bool:
        return bool(self._keys)

    def sign(self, task: str, message_id: str, rest: str = "") -> str:
        """Return the signature by the first key."""
        return _digest(self._keys[0], task, message_id, rest)

    def is_good(self, signature: object, task: str, message_id: str, rest: str = "") -> bool:
        """Return whether the signature was made with one of the keys, or is missing and not required."""
        if signature is None or not self._keys:
            return self._accept_unsigned
        if not isinstance(signature, str) or not signature.isascii():
            return False
        return any(hmac.compare_digest(signature, _digest(key, task, message_id, rest)) for key in self._keys)


UNSIGNED = Signer()


def signer(settings: Settings) -> Signer:
    """Return a signer with the keys of these settings."""
    keys = settings.message_key.get_secret_value().split(",") if settings.message_key is not None else []
    return Signer(keys, accept_unsigned=settings.accept_unsigned)


def _digest(key: bytes, task: str, message_id: str, rest: str) -> str:
    # None of our texts contains a line break. Text from a stranger may contain a surrogate, which must not end a
    # worker.
    return hmac.digest(key, f"{task}\n{message_id}\n{rest}".encode(errors="replace"), "sha256").hex()


_CODED = '"content-type":"application/json","content-encoding":"utf-8"'
_FORM = re.compile("([^:]{1,100}):([^:]{1,100}):([0-9]{1,14})")
"""The form of a message's id: decision, pass, milliseconds. Fourteen digits reach the year 5138, so `datetime` can
represent every match."""


def encode(queued: Queued, signer: Signer = UNSIGNED) -> str:
    """Return the Redis message that hands this decision to its actor, signed if there is a key.

    Its arguments are the decision's id and the pass. The message's id contains both as well, so that a worker's parent
    process can read from it what its children run, and how old the messages are that it takes; see `parse_id`.
    """
    age = 0 if queued.first else _milliseconds(queued.queued_at)
    decision_id, pass_key, (headers, delivery) = queued.id, queued.pass_key, _of_actor(queued.actor)
    # A pass is new for every enqueue but shared by a batch, so it identifies the message only together with the
    # decision. Both consist of letters, digits and a slash: nothing to escape.
    message_id = f"{decision_id}:{pass_key}:{age}"
    signature = f'"{HEADER}":"{signer.sign(queued.actor, message_id)}",' if signer.signs else ""
    return (
        f'{{"body":"[[\\"{decision_id}\\",\\"{pass_key}\\"],{{}},{{}}]",{_CODED},{headers}{signature}"id":"{message_id}"}},'
        f'"properties":{{{delivery},"delivery_tag":"{message_id}"}}}}'
    )


@lru_cache(maxsize=8)
def _milliseconds(moment: datetime) -> int:
    """Return milliseconds since 1970. Cached, because all messages of a batch have the same moment."""
    return round(moment.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class MessageId:
    """The content of a message's id: its decision, the pass, and when it was queued by the database's clock.

    The time is None for a message that was put first in line, because it does not show how far the queue has advanced.
    """

    decision_id: str
    pass_key: str
    queued_at: datetime | None


def parse_id(message_id: object) -> MessageId | None:
    """Return the content of a message's id; None if the id does not have exactly the form of ours."""
    if type(message_id) is not str or not (match := _FORM.fullmatch(message_id)):
        return None
    decision_id, pass_key, milliseconds = match.groups()
    if not (is_record_id(decision_id) and is_pass(pass_key)):
        return None
    queued_at = datetime.fromtimestamp(int(milliseconds) / 1000, UTC) if int(milliseconds) else None
    return MessageId(decision_id, pass_key, queued_at)


def id_of(text: bytes) -> MessageId | None:
    """Return the content of the id of a message as stored in Redis; None if the message is not ours."""
    try:
        return parse_id(json.loads(text)["headers"]["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def remake(task: str, message_id: str, args: list[Any], kwargs: dict[str, Any], queue: str, tag: str) -> dict[str, Any]:
    """Return a message as a worker's Celery takes it, made only of these arguments. `tag` is its delivery tag, by which
    it is acknowledged."""
    payload, embed = _prototype(task)
    headers = {**payload["headers"], "id": message_id, "root_id": message_id}
    properties = {
        **payload["properties"],
        "correlation_id": message_id,
        "delivery_tag": tag,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "body_encoding": "utf-8",
    }
    body = f"[{json.dumps(args)}, {json.dumps(kwargs)}, {embed}]"
    return {**payload, "headers": headers, "properties": properties, "body": body}


@lru_cache(maxsize=4096)
def _of_actor(actor: str) -> tuple[str, str]:
    name = json.dumps(actor)
    return f'"headers":{{"task":{name},', f'"delivery_info":{{"exchange":"","routing_key":{name}}}'


@lru_cache(maxsize=4096)
def _prototype(actor: str) -> tuple[dict[str, Any], str]:
    """Return Celery's own message for `actor`, and the JSON of the third part of its body."""
    # Only workers take messages. Programs that only read or send messages do without Celery's modules.
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
