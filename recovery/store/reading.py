"""Reading many records of which another program may have spoilt one: that one is told, and hides none of the others."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from recovery.errors import DamagedRecord
from recovery.records import Record, from_document
from recovery.store.client import Document

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Record)

TOLD_EVERY = 300.0
"""Seconds between two lines on the same record."""
TOLD_OF = 1000
"""Records of which it is remembered when they were told; the earliest are forgotten."""


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


def tell(damage: DamagedRecord) -> bool:
    """Say in the log, once in a while, what of a record can't be read; whether it was said now."""
    return _told.tell(damage.record, damage)


class _Told:
    def __init__(self) -> None:
        self._at: OrderedDict[Any, float] = OrderedDict()
        self._lock = threading.Lock()

    def tell(self, record: object, damage: DamagedRecord) -> bool:
        key, now = repr(record), time.monotonic()
        with self._lock:
            if now - self._at.get(key, float("-inf")) < TOLD_EVERY:
                return False
            self._at[key] = now
            self._at.move_to_end(key)
            while len(self._at) > TOLD_OF:
                self._at.popitem(last=False)
        log.error("%s; it is passed over: repair or remove it by hand", damage)
        return True


_told = _Told()
