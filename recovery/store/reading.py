"""Reading many records of which another program may have spoilt one: that one is told, and hides none of the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from recovery.errors import DamagedRecord
from recovery.log_lines import Seldom
from recovery.records import Record, from_document
from recovery.store.client import Document

R = TypeVar("R", bound=Record)

TELL_EVERY = 300.0
"""Seconds between two lines about one record."""

_told = Seldom(logging.getLogger(__name__), TELL_EVERY)


@dataclass(frozen=True, slots=True)
class Read(Generic[R]):
    """What was read: the records, and of what could not be read why."""

    records: list[R] = field(default_factory=list)
    damaged: list[DamagedRecord] = field(default_factory=list)

    def __add__(self, other: Read[R]) -> Read[R]:
        return Read(self.records + other.records, self.damaged + other.damaged)

    def __len__(self) -> int:
        return len(self.records) + len(self.damaged)


def read(cls: type[R], documents: Iterable[Document], decode: Callable[[Document], R] | None = None) -> Read[R]:
    """All of these, for who has to do something about what can't be read. `decode` in the place of `from_document`."""
    found: Read[R] = Read()
    for document in documents:
        try:
            found.records.append(from_document(cls, document) if decode is None else decode(document))
        except DamagedRecord as damage:
            found.damaged.append(damage)
    return found


def readable(cls: type[R], documents: Iterable[Document], decode: Callable[[Document], R] | None = None) -> Iterator[R]:
    """Those of these that can be read; the others are told in the log."""
    for document in documents:
        try:
            one = from_document(cls, document) if decode is None else decode(document)
        except DamagedRecord as damage:
            tell(damage)
        else:
            yield one


def tell(damage: DamagedRecord) -> None:
    """Say in the log, once in a while for each record, what of it can't be read."""
    _told.warning("%s; it is passed over: repair or remove it by hand", damage, about=repr(damage.record))
