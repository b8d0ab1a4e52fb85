"""What the decisions of a process at rest look like, remembered: most of them look like those of another one.

Ids of tasks are made from their parents' and their places, so the records of processes that took the same way are the
same bytes but for the process's id. Those of one of them are decoded and looked at; whose are the same bytes are at
rest as well, and are only compared. The id stands in each record once, in its key: of others nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

MAX_BYTES = 8_000_000
"""Of records that are remembered, which takes three times as much; then all is forgotten, and what still comes is
learned again."""
MAX_EACH = 500_000
"""Of one process's: larger ones are rare, and take their time whatever is done."""
MAX_ALIKE = 8
"""Forms of the same tasks: their decisions differ in who scheduled whom, or in their epoch."""


@dataclass(frozen=True, slots=True)
class Form:
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

    _known: dict[frozenset[str], list[Form]] = field(default_factory=dict)
    _bytes: int = 0

    def of(self, finished: frozenset[str]) -> Iterable[Form]:
        """Forms of processes with these tasks, the last that was learned first."""
        return self._known.get(finished, ())

    def learn(self, finished: frozenset[str], process_id: bytes, records: bytes, count: int) -> None:
        """These records of a process are at rest."""
        if not count or records.count(process_id) != count or len(records) > MAX_EACH:
            return
        if self._bytes + len(records) > MAX_BYTES:
            self._known, self._bytes = {}, 0
        alike = self._known.setdefault(finished, [])
        alike.insert(0, Form(records.split(process_id), count))
        self._bytes += len(records)
        for forgotten in alike[MAX_ALIKE:]:
            self._bytes -= len(forgotten.of(process_id))
        del alike[MAX_ALIKE:]
