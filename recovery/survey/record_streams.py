"""The documents of a collection handed out process by process, in the order of ids: decoded, or as bytes.

What nobody asks for is passed over, and told: in a range that is gone through whole it belongs to no process.

Bytes are compared with the decisions of other processes at rest (`Forms`), because most of them look like those of
another one. Ids of tasks are made from their parents' and their places, so the records of processes that took the same
way are the same bytes except for the process's id. Those of one of them are decoded and looked at; whose are the same
bytes are at rest as well, and are only compared. The id stands in each record once, in its key: of others nothing is
concluded.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from recovery.records.ids import AFTER_SEPARATOR, SEPARATOR
from recovery.store.client import Document

MAX_ORPHANS = 1000
"""Of a range so many are told; there is one cause for them all, or two."""
_HEAD = struct.Struct("<i5xi")
"""How a document begins: its size, `_id` as the name of a text, and the size of that text."""
MAX_FORM_BYTES = 8_000_000
"""Of records that are remembered, which takes three times as much; then all is forgotten, and what still comes is
learned again."""
MAX_PROCESS_BYTES = 500_000
"""Of one process's: larger ones are rare, and take their time whatever is done."""
MAX_FORMS_ALIKE = 8
"""Forms of the same tasks: their decisions differ in who scheduled whom, or in their epoch."""


class Stream:
    """Documents that were decoded a page at a time."""

    def __init__(self, source: Iterator[list[Document]]) -> None:
        self._source = source
        self._documents: list[Document] = []
        self._ids: list[str] = []
        self._at = 0
        self.passed_over: set[str] = set()
        """Processes whose records nobody asked for."""

    def take(self, process_id: str) -> tuple[list[str], list[Document]]:
        """Keys and documents of this process. Those before it, which nobody asked for, are passed over."""
        after = process_id + AFTER_SEPARATOR
        while (end := bisect_left(self._ids, after, self._at)) == len(self._ids) and self._turn():
            pass
        start = self._at
        if start < end and self._ids[start] < process_id:
            start = bisect_left(self._ids, process_id, start, end)
            self._pass_over(self._at, start)
        self._at = end
        return self._ids[start:end], self._documents[start:end]

    def pass_over_rest(self) -> Iterator[None]:
        """Pass over what is left, page by page."""
        self._pass_over(self._at, len(self._ids))
        self._at = len(self._ids)
        while self._turn():
            self._pass_over(0, len(self._ids))
            self._at = len(self._ids)
            yield

    def _pass_over(self, start: int, end: int) -> None:
        if len(self.passed_over) < MAX_ORPHANS:
            self.passed_over.update(key.partition(SEPARATOR)[0] for key in self._ids[start:end])

    def _turn(self) -> bool:
        """Add the next page to what is left of this one."""
        page = next(self._source, None)
        if page is None:
            return False
        self._documents = self._documents[self._at :] + page
        self._ids = self._ids[self._at :] + [document["_id"] for document in page]
        self._at = 0
        return True


class RawStream:
    """Documents as bytes, one after the other. Each begins with its key, where the server puts it, and keys that are no
    texts are not asked for."""

    def __init__(self, source: Iterator[bytes]) -> None:
        self._source = source
        self._data = b""
        self._at = 0
        self.passed_over: set[str] = set()
        """Processes whose records nobody asked for."""

    def pass_over_before(self, process_id: bytes) -> None:
        """Pass over what comes before this process, which nobody asked for."""
        if self._data.startswith(process_id, self._at + _HEAD.size):
            return
        while (coming := self._coming()) is not None and coming[0] < process_id:
            key, self._at = coming
            self._pass_over(key)

    def comes(self, process_id: bytes, records: bytes) -> bool:
        """Whether what comes next is exactly these records, and no other of this process. If so they are taken."""
        length = len(records)
        beyond = length + _HEAD.size
        while len(self._data) < self._at + beyond + len(process_id) and self._turn():
            pass
        if not self._data.startswith(records, self._at) or self._data.startswith(process_id, self._at + beyond):
            return False
        self._at += length
        return True

    def take(self, process_id: bytes) -> bytes:
        """The records of this process, which come next if there are any."""
        after, length = process_id + AFTER_SEPARATOR.encode(), 0
        while self._at + length < len(self._data) or self._turn():
            at = self._at + length
            if at == len(self._data):  # the page was empty
                continue
            size, text = _HEAD.unpack_from(self._data, at)
            start = at + _HEAD.size
            if self._data[start : start + text - 1] >= after:
                break
            length += size
        found = self._data[self._at : self._at + length]
        self._at += length
        return found

    def pass_over_rest(self) -> Iterator[None]:
        """Pass over what is left, page by page."""
        while (coming := self._coming()) is not None:
            key, self._at = coming
            self._pass_over(key)
            if self._at == len(self._data):
                yield

    def _coming(self) -> tuple[bytes, int] | None:
        """The key of the next document, and where it ends; None: there is none left."""
        while self._at == len(self._data):  # the last page may be empty
            if not self._turn():
                return None
        size, length = _HEAD.unpack_from(self._data, self._at)
        start = self._at + _HEAD.size
        return self._data[start : start + length - 1], self._at + size

    def _pass_over(self, key: bytes) -> None:
        if len(self.passed_over) < MAX_ORPHANS:
            self.passed_over.add(key.decode(errors="replace").partition(SEPARATOR)[0])

    def _turn(self) -> bool:
        """Add the next page to what is left of this one."""
        page = next(self._source, None)
        if page is None:
            return False
        self._data = self._data[self._at :] + page
        self._at = 0
        return True


@dataclass(frozen=True, slots=True)
class RecordForm:
    """Records of a process, without its id."""

    parts: Sequence[bytes]
    count: int
    """Of records."""

    def of(self, process_id: bytes) -> bytes:
        """What they are if they are of this process."""
        return process_id.join(self.parts)


@dataclass(slots=True)
class Forms:
    """Decisions that are at rest where these tasks are the finished ones, in the forms that were met."""

    _known: dict[frozenset[str], list[RecordForm]] = field(default_factory=dict)
    _bytes: int = 0

    def of(self, finished: frozenset[str]) -> Iterable[RecordForm]:
        """Forms of processes with these tasks, the last that was learned first."""
        return self._known.get(finished, ())

    def learn(self, finished: frozenset[str], process_id: bytes, records: bytes, count: int) -> None:
        """These records of a process are at rest."""
        if not count or records.count(process_id) != count or len(records) > MAX_PROCESS_BYTES:
            return
        if self._bytes + len(records) > MAX_FORM_BYTES:
            self._known, self._bytes = {}, 0
        alike = self._known.setdefault(finished, [])
        alike.insert(0, RecordForm(records.split(process_id), count))
        self._bytes += len(records)
        for forgotten in alike[MAX_FORMS_ALIKE:]:
            self._bytes -= len(forgotten.of(process_id))
        del alike[MAX_FORMS_ALIKE:]
