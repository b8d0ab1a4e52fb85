"""Streams of a collection's documents, split by process in order of ids, decoded or as bytes.

Documents that are not taken are passed over, and their process ids are recorded. In a range that is read completely,
they belong to no process.

Bytes are compared with known decisions of other processes at rest (`Forms`). Task ids are derived from their parents
and positions, so processes that took the same path have equal records except for the process id. One of these processes
is decoded and checked; equal bytes of others are at rest as well. The id must occur exactly once in each record, in its
key; other records are not compared.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from recovery.records.ids import AFTER_SEPARATOR, SEPARATOR
from recovery.store.client import Document

MAX_ORPHANS = 1000
"""Maximum number of process ids without a process to record per range. They usually have a common cause."""
_HEAD = struct.Struct("<i5xi")
"""The head of a document: its size, `_id` as the name of a text, and the size of that text."""
MAX_FORM_BYTES = 8_000_000
"""Maximum bytes of remembered records, which take three times as much memory. Above it, all forms are forgotten and
learned again."""
MAX_PROCESS_BYTES = 500_000
"""Maximum bytes of the records of one process. Larger processes are rare and not worth remembering."""
MAX_FORMS_ALIKE = 8
"""Maximum number of forms with the same tasks. They differ in which task scheduled which, or in the epoch."""


class Stream:
    """A stream of decoded documents."""

    def __init__(self, source: Iterator[list[Document]]) -> None:
        self._source = source
        self._documents: list[Document] = []
        self._ids: list[str] = []
        self._position = 0
        self.passed_over: set[str] = set()
        """Processes whose records were not taken."""

    def take(self, process_id: str) -> tuple[list[str], list[Document]]:
        """Return keys and documents of this process. Earlier documents are passed over."""
        end_key = process_id + AFTER_SEPARATOR
        while (end := bisect_left(self._ids, end_key, self._position)) == len(self._ids) and self._add_page():
            pass
        start = self._position
        if start < end and self._ids[start] < process_id:
            start = bisect_left(self._ids, process_id, start, end)
            self._pass_over(self._position, start)
        self._position = end
        return self._ids[start:end], self._documents[start:end]

    def pass_over_rest(self) -> Iterator[None]:
        """Pass over the remaining documents, page by page."""
        self._pass_over(self._position, len(self._ids))
        self._position = len(self._ids)
        while self._add_page():
            self._pass_over(0, len(self._ids))
            self._position = len(self._ids)
            yield

    def _pass_over(self, start: int, end: int) -> None:
        if len(self.passed_over) < MAX_ORPHANS:
            self.passed_over.update(key.partition(SEPARATOR)[0] for key in self._ids[start:end])

    def _add_page(self) -> bool:
        """Add the next page to the remaining documents. Return False if there is none."""
        page = next(self._source, None)
        if page is None:
            return False
        self._documents = self._documents[self._position :] + page
        self._ids = self._ids[self._position :] + [document["_id"] for document in page]
        self._position = 0
        return True


class RawStream:
    """A stream of documents as bytes.

    Each document begins with its key, because the server stores it first. Keys must be texts.
    """

    def __init__(self, source: Iterator[bytes]) -> None:
        self._source = source
        self._data = b""
        self._position = 0
        self.passed_over: set[str] = set()
        """Processes whose records were not taken."""

    def pass_over_before(self, process_id: bytes) -> None:
        """Pass over documents of earlier processes."""
        if self._data.startswith(process_id, self._position + _HEAD.size):
            return
        while (next_key := self._next_key()) is not None and next_key[0] < process_id:
            key, self._position = next_key
            self._pass_over(key)

    def comes(self, process_id: bytes, records: bytes) -> bool:
        """Take exactly these records if they come next and no other record of this process follows.

        Return whether they did.
        """
        length = len(records)
        next_id_at = length + _HEAD.size
        while len(self._data) < self._position + next_id_at + len(process_id) and self._add_page():
            pass
        if not self._data.startswith(records, self._position) or self._data.startswith(
            process_id, self._position + next_id_at
        ):
            return False
        self._position += length
        return True

    def take(self, process_id: bytes) -> bytes:
        """Return the records of this process, which come next if there are any; empty otherwise."""
        end_key, length = process_id + AFTER_SEPARATOR.encode(), 0
        while self._position + length < len(self._data) or self._add_page():
            position = self._position + length
            if position == len(self._data):  # the page was empty
                continue
            size, text_size = _HEAD.unpack_from(self._data, position)
            start = position + _HEAD.size
            if self._data[start : start + text_size - 1] >= end_key:
                break
            length += size
        records = self._data[self._position : self._position + length]
        self._position += length
        return records

    def pass_over_rest(self) -> Iterator[None]:
        """Pass over the remaining documents, page by page."""
        while (next_key := self._next_key()) is not None:
            key, self._position = next_key
            self._pass_over(key)
            if self._position == len(self._data):
                yield

    def _next_key(self) -> tuple[bytes, int] | None:
        """Return the key of the next document and the position of its end; None if there is none."""
        while self._position == len(self._data):  # the last page may be empty
            if not self._add_page():
                return None
        size, length = _HEAD.unpack_from(self._data, self._position)
        start = self._position + _HEAD.size
        return self._data[start : start + length - 1], self._position + size

    def _pass_over(self, key: bytes) -> None:
        if len(self.passed_over) < MAX_ORPHANS:
            self.passed_over.add(key.decode(errors="replace").partition(SEPARATOR)[0])

    def _add_page(self) -> bool:
        """Add the next page to the remaining bytes. Return False if there is none."""
        page = next(self._source, None)
        if page is None:
            return False
        self._data = self._data[self._position :] + page
        self._position = 0
        return True


@dataclass(frozen=True, slots=True)
class RecordForm:
    """The records of a process with its id cut out."""

    parts: Sequence[bytes]
    count: int
    """Number of records."""

    def of(self, process_id: bytes) -> bytes:
        """Return the records with this process id inserted."""
        return process_id.join(self.parts)


@dataclass(slots=True)
class Forms:
    """Known forms of decisions at rest, by the finished tasks of their process."""

    _known: dict[frozenset[str], list[RecordForm]] = field(default_factory=dict)
    _bytes: int = 0

    def of(self, finished: frozenset[str]) -> Iterable[RecordForm]:
        """Return the forms of processes with these tasks, the most recently learned first."""
        return self._known.get(finished, ())

    def learn(self, finished: frozenset[str], process_id: bytes, records: bytes, count: int) -> None:
        """Remember the records of a process at rest, if they are small enough and contain the id once each."""
        if not count or records.count(process_id) != count or len(records) > MAX_PROCESS_BYTES:
            return
        if self._bytes + len(records) > MAX_FORM_BYTES:
            self._known, self._bytes = {}, 0
        forms = self._known.setdefault(finished, [])
        forms.insert(0, RecordForm(records.split(process_id), count))
        self._bytes += len(records)
        for forgotten in forms[MAX_FORMS_ALIKE:]:
            self._bytes -= len(forgotten.of(process_id))
        del forms[MAX_FORMS_ALIKE:]
