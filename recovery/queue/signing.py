"""Signatures of messages, for a Redis that others can write to: a keyed hash (HMAC-SHA256) over what a message says.

The hash is over the task, the message's id, and what else is read of it. The id of an attempt's message names the task
to run, the pass and the time, so none of these can be forged, nor put into another actor's queue.

Promises: without the key nobody makes a message that a worker takes. It doesn't promise that a message is taken once:
one that was seen can be put into its queue again. For an attempt its pass is stale by then; a nudge has a worker look
for what is overdue; a sweep is taken until it expires.

Several keys let them be changed while the cluster runs: the first signs, all verify.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from recovery.settings import Settings

HEADER = "signature"
"""The header that it is in. Workers without a key don't look at it."""


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
