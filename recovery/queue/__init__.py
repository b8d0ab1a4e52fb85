"""Redis messages in the form that Celery workers take. Each actor has one queue, named after the actor.

A message is a hint that a decision is queued. It holds the decision's id and the pass under which to claim it.

- `broker` pushes a batch of messages in one round trip.
- `message` encodes and signs messages.
- `untrusted` reads texts from Redis that anybody may have written.
- `redis_connection` holds the connection settings that all our clients share.
- `celery_app` keeps Celery settings of other programs out.
- `remote` notifies all workers of a change.
- `coordination` holds what workers share through Redis besides messages.
- `redis_condition` reads the state of a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.lazy_imports import exported

if TYPE_CHECKING:
    from recovery.queue.broker import Broker
    from recovery.queue.coordination import Kept, Turns
    from recovery.queue.message import MessageId, Signer, encode, parse_id, remake, signer
    from recovery.queue.remote import LIVES, SETTINGS_CHANGED

__all__ = [
    "LIVES",
    "SETTINGS_CHANGED",
    "Broker",
    "Kept",
    "MessageId",
    "Signer",
    "Turns",
    "encode",
    "parse_id",
    "remake",
    "signer",
]

__getattr__ = exported(
    __name__,
    {
        "broker": "Broker",
        "coordination": "Kept Turns",
        "message": "MessageId Signer encode parse_id remake signer",
        "remote": "LIVES SETTINGS_CHANGED",
    },
)
