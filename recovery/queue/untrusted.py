"""What others may have put into Redis: a text that is no message of ours is refused, and a key in the place of a queue
is set aside.

Whoever can write to Redis can write anything there, and Celery believes all of it: callbacks to send, times to wait
for, an encoding that unpacks to gigabytes, fields of other types that end a worker. So no text reaches Celery. What is
read of a text is what is needed: for which task it is, its id, and for a sweep whether it repairs. Each must have
exactly its form. A message is made anew from that (`message.remake`), and all else in the text is dropped.

Promises: of whatever bytes, either a small value or `MessageRefused`, in time and memory that `MAX_BYTES` bounds.
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
"""Characters of an id of a message that is no attempt's: whoever sends it may choose it."""

ASIDE = "not-a-queue"
"""In the name that is given to what stood in the place of a queue of ours, and in front of something random."""


class MessageRefusal(StrEnum):
    """Why a text is not believed."""

    TOO_LARGE = "too large"
    MALFORMED = "malformed"
    OTHER_TASK = "other task"
    SIGNATURE = "signature"
    EXPIRED = "expired"
    COMMAND = "command"


class MessageRefused(Exception):
    """A text that is dropped. `reason` says nothing of what is in it."""

    def __init__(self, reason: MessageRefusal) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message for one task, of which nothing more is checked yet than its task and that it has an id."""

    task: str
    id: str
    headers: dict[str, Any]
    message: dict[str, Any]

    def verify(self, signer: Signer, rest: str = "") -> None:
        """Raise MessageRefused unless its signature is good for its task, its id and the rest."""
        if not signer.is_good(self.headers.get(HEADER), self.task, self.id, rest):
            raise MessageRefused(MessageRefusal.SIGNATURE)


def attempt(text: bytes, actor: str, signer: Signer) -> tuple[str, MessageId]:
    """The id of a message that hands a decision to this actor, and what it tells. Raises MessageRefused."""
    envelope = unseal(text, actor)
    told = parse_id(envelope.id)
    if told is None:
        raise MessageRefused(MessageRefusal.MALFORMED)
    envelope.verify(signer)
    return envelope.id, told


def nudge(text: bytes, task: str, signer: Signer) -> None:
    """A message that says no more than that it is there. Raises MessageRefused."""
    unseal(text, task).verify(signer)


def sweep(text: bytes, task: str, signer: Signer) -> tuple[bool, float]:
    """Whether a message for a sweep has it repair, and every how many seconds one is wanted. Raises
    MessageRefused, for one that is too old as well."""
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
    """What of a sweep's message is signed besides its task and id."""
    return f"{expires} {repair} {every}"


def unseal(text: bytes, task: str) -> Envelope:
    """A message for this task. Raises MessageRefused."""
    match parse(text):
        case {"headers": {"task": str(name), "id": str(id_)} as headers} as message if len(id_) <= MAX_ID:
            if name != task:
                raise MessageRefused(MessageRefusal.OTHER_TASK)
            return Envelope(task, id_, headers, message)
    raise MessageRefused(MessageRefusal.MALFORMED)


def parse(text: bytes | str) -> Any:
    """A text as JSON, if it is one of bounded size and depth. Raises MessageRefused."""
    if len(text) > MAX_BYTES:
        raise MessageRefused(MessageRefusal.TOO_LARGE)
    try:
        return json.loads(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError):
        raise MessageRefused(MessageRefusal.MALFORMED) from None


def decode_body(message: Any) -> Any:
    """The body of a message, as Celery encodes it. Raises MessageRefused."""
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
    """Whether a time as Celery writes it is over. By this machine's clock, as Celery itself has it."""
    if expires is None:
        return False
    try:
        moment = datetime.fromisoformat(expires)
        return moment.astimezone(UTC) < datetime.now(UTC)
    except (TypeError, ValueError, OverflowError):
        raise MessageRefused(MessageRefusal.MALFORMED) from None


def set_aside(client: Any, key: str, name: str, wanted: str) -> tuple[str, str] | None:
    """Rename what stands at `key`, unless it has the type that it should have. Return the type that it has and its new
    name, which begins with `name`; None if it is well, or was changed meanwhile.

    Otherwise no poll of any queue would be answered, or no worker would start. It belongs to somebody, so it is not
    removed. `client` is one of redis-py's, whose errors are raised.
    """
    with client.pipeline() as pipeline:
        pipeline.watch(key)  # else a queue that took its place just now could be what is renamed
        kind = pipeline.type(key)
        kind = kind.decode() if isinstance(kind, bytes) else kind
        if kind in ("none", wanted):
            return None
        aside = f"{name}.{ASIDE}.{secrets.token_hex(8)}"
        pipeline.multi()
        pipeline.renamenx(key, aside)
        try:
            pipeline.execute()
        except WatchError:
            return None
    return kind, aside
