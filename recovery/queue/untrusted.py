"""Check untrusted data from Redis: refuse texts that are not messages of ours, and set aside keys that take the place
of a queue.

Whoever can write to Redis can write anything there, and Celery trusts all of it: callbacks to send, delays, an encoding
that unpacks to gigabytes, fields of wrong types that crash a worker. So no text reaches Celery. Only the required parts
of a text are read: its task, its id, and for a sweep whether it repairs. Each must have exactly its form. A new message
is made from these parts (`message.remake`), and the rest of the text is dropped.

Guarantee: any bytes result either in a small value or in `MessageRefused`, in time and memory bounded by `MAX_BYTES`.
"""

from __future__ import annotations

import json
import secrets
from base64 import b64decode
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from redis.exceptions import WatchError

from recovery.limits import LONGEST
from recovery.queue.message import HEADER, MessageId, Signer, parse_id
from recovery.queue.redis_connection import MAX_BYTES

MAX_ID = 200
"""Maximum characters of the id of a message that is not for an attempt. The sender may choose this id."""

ASIDE = "not-a-queue"
"""The middle part of the name that a key is renamed to if it took the place of a queue of ours. Random characters
follow it."""


class MessageRefusal(StrEnum):
    """The reasons to refuse a text."""

    TOO_LARGE = "too large"
    MALFORMED = "malformed"
    OTHER_TASK = "other task"
    SIGNATURE = "signature"
    EXPIRED = "expired"
    COMMAND = "command"


class MessageRefused(Exception):
    """Raised for an untrusted message that must be dropped. `reason` never quotes the message."""

    def __init__(self, reason: MessageRefusal) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message for one task, of which only the task and the id are checked so far."""

    task: str
    id: str
    headers: dict[str, Any]
    message: dict[str, Any]

    def verify(self, signer: Signer, rest: str = "") -> None:
        """Raise MessageRefused unless the signature is valid for the task, the id and `rest`."""
        if not signer.is_good(self.headers.get(HEADER), self.task, self.id, rest):
            raise MessageRefused(MessageRefusal.SIGNATURE)


def attempt(text: bytes, actor: str, signer: Signer) -> tuple[str, MessageId]:
    """Return the id of a message that hands a decision to this actor, and the content of that id. Raises
    MessageRefused."""
    envelope = unseal(text, actor)
    message_id = parse_id(envelope.id)
    if message_id is None:
        raise MessageRefused(MessageRefusal.MALFORMED)
    envelope.verify(signer)
    return envelope.id, message_id


def nudge(text: bytes, task: str, signer: Signer) -> None:
    """Check a message that carries nothing besides its task. Raises MessageRefused."""
    unseal(text, task).verify(signer)


def sweep(text: bytes, task: str, signer: Signer) -> tuple[bool, float]:
    """Check a message that orders a sweep. Raises MessageRefused, also if the message has expired.

    Returns:
        Whether the sweep repairs, and the interval in seconds between two sweeps.
    """
    envelope = unseal(text, task)
    expires = envelope.headers.get("expires")
    match decode_body(envelope.message):
        case [list() | tuple(), {"repair": bool(repair), "every": int() | float() as every}, *_] if _is_time(every):
            envelope.verify(signer, sweep_terms(expires, repair, every))
        case _:
            raise MessageRefused(MessageRefusal.MALFORMED)
    if _is_past(expires):
        raise MessageRefused(MessageRefusal.EXPIRED)
    return repair, float(every)


def sweep_terms(expires: object, repair: object, every: object) -> str:
    """Return the text that is signed for a sweep's message, besides its task and id."""
    return f"{expires} {repair} {every}"


def unseal(text: bytes, task: str) -> Envelope:
    """Return the envelope of a message for this task. Raises MessageRefused."""
    match parse(text):
        case {"headers": {"task": str(name), "id": str(id_)} as headers} as message if len(id_) <= MAX_ID:
            if name != task:
                raise MessageRefused(MessageRefusal.OTHER_TASK)
            return Envelope(task, id_, headers, message)
    raise MessageRefused(MessageRefusal.MALFORMED)


def parse(text: bytes | str) -> Any:
    """Return a text parsed as JSON. Raises MessageRefused if it is too long, nested too deeply, or not JSON."""
    if len(text) > MAX_BYTES:
        raise MessageRefused(MessageRefusal.TOO_LARGE)
    try:
        return json.loads(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError):
        raise MessageRefused(MessageRefusal.MALFORMED) from None


def decode_body(message: Any) -> Any:
    """Return the body of a message, decoded as Celery encodes it. Raises MessageRefused."""
    match message:
        case {"body": str(body), "properties": {"body_encoding": "base64"}}:
            try:
                return parse(b64decode(body, validate=True))
            except ValueError:
                raise MessageRefused(MessageRefusal.MALFORMED) from None
    raise MessageRefused(MessageRefusal.MALFORMED)


def _is_time(seconds: float) -> bool:
    return not isinstance(seconds, bool) and 1 <= seconds <= LONGEST


def _is_past(expires: Any) -> bool:
    """Return whether a time as Celery writes it is past, by this machine's clock, which Celery uses as well."""
    if expires is None:
        return False
    try:
        moment = datetime.fromisoformat(expires)
        return moment.astimezone(UTC) < datetime.now(UTC)
    except (TypeError, ValueError, OverflowError):
        raise MessageRefused(MessageRefusal.MALFORMED) from None


def set_aside(client: Any, key: str, name: str, wanted: str) -> tuple[str, str] | None:
    """Rename the value at `key` unless it has the type `wanted`.

    Otherwise Redis would answer no poll of any queue, or no worker would start. The value is renamed and not deleted,
    because it belongs to another program.

    Args:
        client: A client of redis-py. Its errors are raised.
        key: The key to check.
        name: The first part of the new name.
        wanted: The type that the key should have.

    Returns:
        The type of the value and its new name; None if the key is free or has the right type, or was changed meanwhile.
    """
    with client.pipeline() as pipeline:
        pipeline.watch(key)  # otherwise the rename could hit a queue that was created at this key in the meantime
        key_type = pipeline.type(key)
        key_type = key_type.decode() if isinstance(key_type, bytes) else key_type
        if key_type in ("none", wanted):
            return None
        aside = f"{name}.{ASIDE}.{secrets.token_hex(8)}"
        pipeline.multi()
        pipeline.renamenx(key, aside)
        try:
            pipeline.execute()
        except WatchError:
            return None
    return key_type, aside
