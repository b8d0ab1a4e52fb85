"""Messages to Redis, in the form that Celery workers take. One queue per actor, named as the actor.

A message is a hint that a decision is queued: its id and the pass to claim it with. `broker` pushes a batch in one
round trip; `message` makes the texts, and `signing` signs them; `untrusted` reads what may be anybody's.
`redis_connection` says how all of us connect, `celery_app` keeps foreign settings of Celery out, `remote` tells all
workers that there is something new, `coordination` is what workers tell each other beside messages, and
`redis_condition` how a server is.
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
