"""Ids of processes, tasks and passes; and names of actors.

A process id is a UUIDv7 in 32 hex digits, so ids sort by time of start and a process's records lie next to
each other in every collection. A task id names a task within its process; the id of its records is `P/T`.
Child ids are derived, not drawn: the same decider, epoch and place give the same id, so a child inserted
twice is one child. Derived ids are short (80 bits in 16 characters) because a graph holds one per task.

The name of an actor is also that of a list in Redis, and the type of the processes that begin with the actor. A client
may write any text into MongoDB, and a worker pushes a task's message into the list of the name that it finds there. So
a name with which the message would go into a list of Celery's, kombu's or our own is none that an actor can have, and a
record that holds one is damaged.
"""

from __future__ import annotations

import re
from base64 import b32encode
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Final, TypeGuard

import uuid_utils

Epoch = Annotated[int, "epoch"]
"""The type of a record's field that holds the number of an epoch of its process, from 0."""
START_TASK: Final = "start"
SEPARATOR = "/"
# The character after the separator: `P/` <= ids of P's records < `P0`.
AFTER_SEPARATOR = "0"
HOLDER_SEPARATOR, HOLDER_END = "#", "$"

_HEX = "[0-9a-f]{32}"
_PROCESS_ID, _PASS = re.compile(_HEX), re.compile(_HEX)
_LAST_MOMENT = round(datetime.max.replace(tzinfo=UTC, microsecond=999_000).timestamp() * 1000)
_RECORD_ID = re.compile(f"{_HEX}{SEPARATOR}(?:{START_TASK}|[a-z2-7]{{16}})")


def new_process_id() -> str:
    """A new process id: 32 hex digits, later ones sort after earlier ones."""
    return str(uuid_utils.uuid7().hex)


def started_at(process_id: str) -> datetime:
    """Return when a process of this id was started, by the clock of whoever started it: in the year 9999 at the
    latest, since an id can name a later one. Raises ValueError for another id."""
    return datetime.fromtimestamp(min(int(process_id[:12], 16), _LAST_MOMENT) / 1000, UTC)


def new_pass() -> str:
    """A new pass key. One batch of requeues may share one: it is compared per decision."""
    return str(uuid_utils.uuid7().hex)


def child_task_id(parent: str, epoch: int, place: int) -> str:
    """Id of the `place`-th task that `parent` schedules in `epoch`."""
    digest = blake2b(f"{parent}\0{epoch}\0{place}".encode(), digest_size=10).digest()
    return b32encode(digest).decode().lower()


def is_process_id(value: object) -> TypeGuard[str]:
    """Whether this is a text of the form that `new_process_id` makes."""
    return type(value) is str and _PROCESS_ID.fullmatch(value) is not None


def is_pass(value: object) -> TypeGuard[str]:
    """Whether this is a text of the form that `new_pass` makes."""
    return type(value) is str and _PASS.fullmatch(value) is not None


def is_record_id(value: object) -> TypeGuard[str]:
    """Whether this is a text `P/T` of the forms that are made here."""
    return type(value) is str and _RECORD_ID.fullmatch(value) is not None


def record_id(process_id: str, task_id: str) -> str:
    """`P/T`, the id of a task's Task and Decision."""
    return f"{process_id}{SEPARATOR}{task_id}"


def split_record_id(record: str) -> tuple[str, str]:
    """(P, T) of `P/T`."""
    process_id, _, task_id = record.partition(SEPARATOR)
    return process_id, task_id


def holder(worker_id: str, pid: int, thread: int | None = None) -> str:
    """Who holds a claim: one process of a worker, or one thread of it. `W` <= all holders of worker W < `W$`, and so
    with those of a process."""
    name = f"{worker_id}{HOLDER_SEPARATOR}{pid}"
    return name if thread is None else f"{name}{HOLDER_SEPARATOR}{thread}"


def worker_of(holder_name: str) -> str:
    """The worker of a holder."""
    return holder_name.partition(HOLDER_SEPARATOR)[0]


ActorName = Annotated[str, "actor"]
"""The type of a record's field that holds one."""

CANARY = "recovery.canary"
"""The one actor of our own: it, its queue and its process type. No application can have an actor of this name."""

ACTOR_NAME_LENGTH = 200
_CHARACTERS = f"[A-Za-z0-9_.-]{{1,{ACTOR_NAME_LENGTH}}}"
# Keys of ours begin with `recovery.`, and the queue of sweeps is `spark`. Of kombu's and Celery's are the others; the
# queues of remote control end in .pidbox. What was set aside has .not-a-queue. in its name (`queue.untrusted`).
_RESERVED = (
    r"(recovery|celery|celeryev|celeryd|_kombu)(\..*)?|spark|unacked(_index|_mutex)?|.*\.pidbox|.*\.not-a-queue\..*"
)
_IS_NAME = re.compile(rf"{re.escape(CANARY)}|(?!({_RESERVED})\Z){_CHARACTERS}")
_IS_RESERVED = re.compile(_RESERVED)

ACTOR_NAME_PATTERN = rf"^({re.escape(CANARY)}|(?!({_RESERVED})\z){_CHARACTERS})\z"
"""The same for MongoDB, whose expressions are PCRE's."""


def is_actor_name(name: str) -> bool:
    """Whether an actor can have this name: 1 to 200 letters, digits, '_', '.' and '-', and nobody else uses it."""
    return len(name) <= ACTOR_NAME_LENGTH and _matches(name)


@lru_cache(maxsize=4096)
def _matches(name: str) -> bool:
    return _IS_NAME.fullmatch(name) is not None


def is_reserved(name: str) -> bool:
    """Whether this is the name of something in Redis or in Celery that is not an application's."""
    return _IS_RESERVED.fullmatch(name) is not None
