"""Names of actors: each is also that of a list in Redis, and the type of the processes that begin with the actor.

A client may write any text into MongoDB, and a worker pushes a task's message into the list of the name that it finds
there. So a name with which the message would go into a list of Celery's, kombu's or our own is none that an actor can
have, and a record that holds one is damaged.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated

ActorName = Annotated[str, "actor"]
"""The type of a record's field that holds one."""

CANARY = "recovery.canary"
"""The one actor of our own: it, its queue and its process type. No application can have an actor of this name."""

MAX_LENGTH = 200
_CHARACTERS = f"[A-Za-z0-9_.-]{{1,{MAX_LENGTH}}}"
# Keys of ours begin with `recovery.`, and the queue of sweeps is `spark`. Of kombu's and Celery's are the others; the
# queues of remote control end in .pidbox. What was set aside has .not-a-queue. in its name (`queue.untrusted`).
_RESERVED = (
    r"(recovery|celery|celeryev|celeryd|_kombu)(\..*)?|spark|unacked(_index|_mutex)?|.*\.pidbox|.*\.not-a-queue\..*"
)
_IS_NAME = re.compile(rf"{re.escape(CANARY)}|(?!({_RESERVED})\Z){_CHARACTERS}")
_IS_RESERVED = re.compile(_RESERVED)

PATTERN = rf"^({re.escape(CANARY)}|(?!({_RESERVED})\z){_CHARACTERS})\z"
"""The same for MongoDB, whose expressions are PCRE's."""


def is_actor_name(name: str) -> bool:
    """Whether an actor can have this name: 1 to 200 letters, digits, '_', '.' and '-', and nobody else uses it."""
    return len(name) <= MAX_LENGTH and _matches(name)


@lru_cache(maxsize=4096)
def _matches(name: str) -> bool:
    return _IS_NAME.fullmatch(name) is not None


def is_reserved(name: str) -> bool:
    """Whether this is the name of something in Redis or in Celery that is not an application's."""
    return _IS_RESERVED.fullmatch(name) is not None
