"""Which processes an operation is about: those of its selection, in order of id."""

from __future__ import annotations

from recovery.engine import Resources
from recovery.records import Operation, OperationRange
from recovery.search import parse
from recovery.store.views.ranges import Range


class Selected:
    """The processes of an operation's selection."""

    def __init__(self, resources: Resources, operation: Operation) -> None:
        self._search = resources.store.search
        self._query = parse(operation.selection, now=operation.asked_at or resources.store.now())

    def page(self, part: OperationRange, limit: int) -> list[str]:
        """The next processes of a range, after its cursor."""
        return self._search.page(self._query, part.cursor, limit, part=Range(part.start, part.end))
