"""Creates and checks ids of processes, tasks and passes, and checks names of actors.

A process id is a UUIDv7 in 32 hex digits, so ids sort by time of start, and a process's records are neighbours in every
collection. A task id names a task within its process; the id of the task's records is `P/T`. The id of a child is a
hash of its parent, epoch and place, so that a child inserted twice is one child. These ids are short (80 bits in 16
characters) because a graph holds one per task.

An actor's name is also the name of its queue, a list in Redis, and the type of the processes that start with the actor.
Clients may write any text into MongoDB, and a worker pushes a task's message into the list that the record names.
Therefore names of lists that belong to Celery, kombu or this library are reserved. No actor can have such a name, and a
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
"""The type of record fields that hold the number of a process's epoch, from 0."""
START_TASK: Final = "start"
SEPARATOR = "/"
# The character that follows SEPARATOR in ASCII, for ranges: `P/` <= ids of P's records < `P0`.
AFTER_SEPARATOR = "0"
HOLDER_SEPARATOR, HOLDER_END = "#", "$"

_HEX = "[0-9a-f]{32}"
_PROCESS_ID, _PASS = re.compile(_HEX), re.compile(_HEX)
_LAST_MOMENT = round(datetime.max.replace(tzinfo=UTC, microsecond=999_000).timestamp() * 1000)
_RECORD_ID = re.compile(f"{_HEX}{SEPARATOR}(?:{START_TASK}|[a-z2-7]{{16}})")


def new_process_id() -> str:
    """Return a new process id of 32 hex digits, which sorts after all earlier ids."""
    return str(uuid_utils.uuid7().hex)


def started_at(process_id: str) -> datetime:
    """Return when a process with this id was started, by the clock of the client that started it.

    An id can encode a time after the year 9999; the result is then the last moment of 9999.

    Raises:
        ValueError: The text does not begin with hex digits.
    """
    return datetime.fromtimestamp(min(int(process_id[:12], 16), _LAST_MOMENT) / 1000, UTC)


def new_pass() -> str:
    """Return a new pass key. A batch of requeues may share one key, because passes are compared per decision."""
    return str(uuid_utils.uuid7().hex)


def child_task_id(parent: str, epoch: int, place: int) -> str:
    """Return the id of the `place`-th task that `parent` schedules in `epoch`."""
    digest = blake2b(f"{parent}\0{epoch}\0{place}".encode(), digest_size=10).digest()
    return b32encode(digest).decode().lower()


def is_process_id(value: object) -> TypeGuard[str]:
    """Return whether the value has the form of a process id."""
    return type(value) is str and _PROCESS_ID.fullmatch(value) is not None


def is_pass(value: object) -> TypeGuard[str]:
    """Return whether the value has the form of a pass key."""
    return type(value) is str and _PASS.fullmatch(value) is not None


def is_record_id(value: object) -> TypeGuard[str]:
    """Return whether the value has the form `P/T`, with a process id and a task id that this module could create."""
    return type(value) is str and _RECORD_ID.fullmatch(value) is not None


def record_id(process_id: str, task_id: str) -> str:
    """Return `P/T`, the id of a task's Task and Decision."""
    return f"{process_id}{SEPARATOR}{task_id}"


def split_record_id(record: str) -> tuple[str, str]:
    """Return (P, T) of `P/T`."""
    process_id, _, task_id = record.partition(SEPARATOR)
    return process_id, task_id


def holder(worker_id: str, pid: int, thread: int | None = None) -> str:
    """Return the name of a claim's holder: a process of a worker, or one of its threads, as `W#PID` or `W#PID#THREAD`.

    Names sort so that `W` <= all holders of worker W < `W$`, and likewise for the holders of a process.
    """
    name = f"{worker_id}{HOLDER_SEPARATOR}{pid}"
    return name if thread is None else f"{name}{HOLDER_SEPARATOR}{thread}"


def worker_of(holder_name: str) -> str:
    """Return the worker's id from the name of a holder."""
    return holder_name.partition(HOLDER_SEPARATOR)[0]


ActorName = Annotated[str, "actor"]
"""The type of record fields that hold an actor's name."""

CANARY = "recovery.canary"
"""The name of this library's own actor, its queue and its process type. Applications cannot use this name."""

ACTOR_NAME_LENGTH = 200
_CHARACTERS = f"[A-Za-z0-9_.-]{{1,{ACTOR_NAME_LENGTH}}}"
# This library's keys begin with `recovery.`, and the queue of sweeps is `spark`. The other names belong to kombu and
# Celery, whose remote control queues end in .pidbox. Untrusted data that was moved aside has .not-a-queue. in its name
# (`queue.untrusted`).
_RESERVED = (
    r"(recovery|celery|celeryev|celeryd|_kombu)(\..*)?|spark|unacked(_index|_mutex)?|.*\.pidbox|.*\.not-a-queue\..*"
)
_IS_NAME = re.compile(rf"{re.escape(CANARY)}|(?!({_RESERVED})\Z){_CHARACTERS}")
_IS_RESERVED = re.compile(_RESERVED)

ACTOR_NAME_PATTERN = rf"^({re.escape(CANARY)}|(?!({_RESERVED})\z){_CHARACTERS})\z"
"""Regular expression for names of actors in the PCRE syntax of MongoDB."""


def is_actor_name(name: str) -> bool:
    """Return whether an actor can have this name: 1 to 200 letters, digits, '_', '.' and '-', and not reserved."""
    return len(name) <= ACTOR_NAME_LENGTH and _matches(name)


@lru_cache(maxsize=4096)
def _matches(name: str) -> bool:
    return _IS_NAME.fullmatch(name) is not None


def is_reserved(name: str) -> bool:
    """Return whether the name is reserved for keys or queues of this library, Celery or kombu."""
    return _IS_RESERVED.fullmatch(name) is not None
