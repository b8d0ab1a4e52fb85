"""What stays of failures: the value that stands for an error, and the records of what failed for good.

`Interruption` is a failed task, `Marker` a process type, or a key of it, that is not started again until an operator
clears it. `fingerprint` groups alike errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from recovery.records.record import OfTask, Record

FRAMES = 8
"""Of a stack so many frames count, those nearest to the error: further out alike errors come by many ways."""
_VARYING = re.compile(r"0x[0-9a-fA-F]+|(?=[a-f]*[0-9])[0-9a-f]{8,}|[0-9]+")


@dataclass(frozen=True, slots=True)
class Failure:
    """How a fallible task ended: what those that wait for it get in its value's place."""

    kind: str
    """Name of the error's type; `WorkTimeout` if it brought no result in time."""
    message: str
    """Up to 500 characters."""
    actor: str
    task: str
    """The task's id within its process."""


def fingerprint(kind: str, frames: Iterable[tuple[str, str]] = ()) -> str:
    """A short mark that alike errors share: of their kind and of where they were raised, as (module, function), the
    outermost first.

    Without line numbers, the roots of paths, and numbers, ids and addresses in names, so that a deployment, another
    machine or a generated name does not make a new error of an old one. A recursion counts as one frame, however deep.
    """
    kept: list[str] = []
    for module, function in frames:
        frame = _VARYING.sub("#", f"{module}:{function}")
        if not kept or kept[-1] != frame:
            kept.append(frame)
    return blake2b("\n".join([kind, *kept[-FRAMES:]]).encode(errors="replace"), digest_size=6).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption(OfTask):
    """A task that ended with an error for which its process is broken: what an operator has to look at.

    Its id is the task's, `P/T`, so what is listed is what is broken now. The stack stays in the decision's outcome.
    """

    id: str
    type: str
    """The process's."""
    actor: str
    kind: str
    message: str
    code: int | None = None
    """The error's, by a catalogue of `retry`."""
    exhausted: int | None = None
    """As in `ErrorInfo.exhausted`."""
    fingerprint: str
    attempt: int = 0
    restarts: int = 0
    """Of the decision that failed."""
    reopened: int = 0
    """How often the process had been set running again: the life of it in which this was listed."""
    at: datetime | None = None


SEPARATOR = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeDisabled(Record):
    """An operator's word that a process type is not to be started."""

    at: datetime | None = None
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearing(Record):
    """A marker that is cleared: who did that and why, and what it had said."""

    at: datetime | None = None
    by: str = ""
    reason: str = ""
    process: str = ""
    code: int | None = None
    kind: str = ""
    message: str = ""
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker(Record):
    """A process of this type, and key, broke for good: no other is started until it is cleared.

    There is one at the most for each type and key; `id` is their name. Once it is cleared the record stays for a while:
    by `cleared_at` whoever is late with a failure from before that writes none.
    """

    id: str
    type: str
    key: str | None = None
    """What of the type it is for, by the type's key function; None: all of it."""
    code: int | None = None
    """The error's, by a catalogue of `retry`."""
    exhausted: int | None = None
    """As in `ErrorInfo.exhausted`."""
    reason: str | None = None
    """The name of the error's reason."""
    kind: str = ""
    message: str = ""
    stack: str | None = None
    fingerprint: str | None = None
    process: str = ""
    """The one that broke."""
    actor: str | None = None
    task: str | None = None
    written_at: datetime | None = None
    cleared_at: datetime | None = None
    clearings: tuple[Clearing, ...] = ()
    """The last ones of this type and key, the newest last."""


def marker_name(process_type: str, key: str | None) -> str:
    """The name of the marker of a type and key, `TYPE` or `TYPE/KEY`. No type has a slash in its name."""
    return process_type if key is None else f"{process_type}{SEPARATOR}{key}"


def split_marker_name(name: str) -> tuple[str, str | None]:
    """(type, key) of a marker's name."""
    process_type, separator, key = name.partition(SEPARATOR)
    return process_type, key if separator else None
