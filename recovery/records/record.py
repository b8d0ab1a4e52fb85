"""What all records are: frozen. All times are aware datetimes in UTC, set by the database's clock.

Arguments and values are JSON texts, not documents: any JSON value is kept to the letter (keys with dots or
dollars, whole numbers of any size), no scan has to decode them, and an update can't mistake them for an
expression. A promise inside one is written `{"$promise": task id}`; see `values`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

from recovery.records import ids


class Record:
    """Base of the records: frozen; a changed copy is made by `evolve`."""

    __slots__ = ()

    ALWAYS_WRITTEN: ClassVar[frozenset[str]] = frozenset()
    """Fields without which a record is damaged although they have defaults, since these would contradict what updates
    compare: a process without an epoch would be read as of epoch 0, and no update of epoch 0 would ever match it."""
    KEPT_WHEN_EMPTY: ClassVar[frozenset[str]] = frozenset()
    """Fields that are written though nothing is in them."""

    def evolve(self, **changes: Any) -> Self:
        """A copy with these fields changed."""
        return replace(self, **changes)  # type: ignore[type-var]


class OfTask(Record):
    """Base of the records whose id is a task's, `P/T`."""

    __slots__ = ()

    id: str

    @property
    def process_id(self) -> str:
        return ids.split_record_id(self.id)[0]

    @property
    def task_id(self) -> str:
        return ids.split_record_id(self.id)[1]
