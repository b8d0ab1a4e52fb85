"""Which process types, and which keys of them, are not to be started again until an operator says so: the Marker
record; and what operators say with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from recovery.records.record import Record

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
