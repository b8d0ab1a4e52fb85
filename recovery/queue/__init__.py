"""Messages to Redis, in the form that Celery workers take. One queue per actor, named as the actor.

A message is a hint that a decision is queued: its id and the pass to claim it with. `broker` pushes a batch in one
round trip; `connection` says how all of us connect;
`celery_app` keeps foreign settings of Celery out; `message` makes the texts; `remote` tells all workers that there
is something new; `turns` says who applies what ends in a large process, `kept` whether Redis lost its
data, `places` who scans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.exports import exported

if TYPE_CHECKING:
    from recovery.queue.broker import Broker
    from recovery.queue.kept import Kept
    from recovery.queue.message import MessageId, encode, parse_id, remake
    from recovery.queue.places import Places
    from recovery.queue.remote import LIVES, SETTINGS_CHANGED
    from recovery.queue.signing import Signer, signer
    from recovery.queue.turns import Turns

__all__ = [
    "LIVES",
    "SETTINGS_CHANGED",
    "Broker",
    "Kept",
    "MessageId",
    "Places",
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
        "kept": "Kept",
        "message": "MessageId encode parse_id remake",
        "places": "Places",
        "remote": "LIVES SETTINGS_CHANGED",
        "signing": "Signer signer",
        "turns": "Turns",
    },
)
