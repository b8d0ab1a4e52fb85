"""Records of failures, and `Failure`, the value that replaces the result of a failed fallible task.

An `Interruption` lists a failed task of a broken process. A `Marker` prevents new processes of a type, or of one key of
a type, until an operator clears it. `fingerprint` groups similar errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from recovery.records.record import OfTask, Record

FRAMES = 8
"""Number of stack frames in a fingerprint, counted from the error. Outer frames differ between similar errors."""
_VARYING = re.compile(r"0x[0-9a-fA-F]+|(?=[a-f]*[0-9])[0-9a-f]{8,}|[0-9]+")


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of a fallible task. Tasks that wait for its value receive this object instead.

    A value with a failure inside may be returned or passed on like any other value.
    """

    kind: str
    """Name of the error's type; `WorkTimeout` if the task returned no result in time."""
    message: str
    """Up to 500 characters."""
    actor: str
    task: str
    """The task's id within its process."""


def fingerprint(kind: str, frames: Iterable[tuple[str, str]] = ()) -> str:
    """Return a short hash that similar errors share, made from their kind and the last frames of their stack.

    Line numbers, roots of paths, and numbers, ids and addresses in names are left out. Otherwise a deployment, another
    machine or a generated name would change the fingerprint. Consecutive equal frames (a recursion) count once.

    Args:
        kind: Name of the error's type.
        frames: (module, function) of each stack frame, outermost first.
    """
    last_frames: list[str] = []
    for module, function in frames:
        frame = _VARYING.sub("#", f"{module}:{function}")
        if not last_frames or last_frames[-1] != frame:
            last_frames.append(frame)
    return blake2b("\n".join([kind, *last_frames[-FRAMES:]]).encode(errors="replace"), digest_size=6).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption(OfTask):
    """A failed task of a broken process, listed for operators.

    Its id is the task's, `P/T`, so the collection lists only what is broken now. The stack is in the decision's
    outcome.
    """

    id: str
    type: str
    """The process type."""
    actor: str
    kind: str
    message: str
    code: int | None = None
    """The error's code in a catalogue of `retry`."""
    exhausted: int | None = None
    """As in `ErrorInfo.exhausted`."""
    fingerprint: str
    attempt: int = 0
    restarts: int = 0
    """The `restarts` of the decision that failed."""
    reopened: int = 0
    """The `reopened` of the process when this interruption was written."""
    at: datetime | None = None


SEPARATOR = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeDisabled(Record):
    """An operator's order that no process of a type is started."""

    at: datetime | None = None
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearing(Record):
    """The clearing of a marker: who cleared it, when and why, and which error the marker recorded."""

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
    """A process of this type and key broke for good. No other is started until an operator clears the marker.

    Each type and key has at most one marker; `id` is `TYPE` or `TYPE/KEY`. A cleared marker is kept for a while, so
    that no marker is written for a failure from before `cleared_at`.
    """

    id: str
    type: str
    key: str | None = None
    """The key that the type's key function returned; None: the marker holds for the whole type."""
    code: int | None = None
    """The error's code in a catalogue of `retry`."""
    exhausted: int | None = None
    """As in `ErrorInfo.exhausted`."""
    reason: str | None = None
    """The name of the error's reason."""
    kind: str = ""
    message: str = ""
    stack: str | None = None
    fingerprint: str | None = None
    process: str = ""
    """Id of the process that broke."""
    actor: str | None = None
    task: str | None = None
    written_at: datetime | None = None
    cleared_at: datetime | None = None
    clearings: tuple[Clearing, ...] = ()
    """The last clearings of this type and key, newest last."""


def marker_name(process_type: str, key: str | None) -> str:
    """Return the marker's name, `TYPE` or `TYPE/KEY`. Names of process types contain no slash."""
    return process_type if key is None else f"{process_type}{SEPARATOR}{key}"


def split_marker_name(name: str) -> tuple[str, str | None]:
    """Return (type, key) of a marker's name; the key is None for a marker of the whole type."""
    process_type, separator, key = name.partition(SEPARATOR)
    return process_type, key if separator else None
