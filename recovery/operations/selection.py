"""Which processes an operation is about: those of its selection, in order of id."""

from __future__ import annotations

from recovery.engine import Resources
from recovery.records import Operation, OperationRange
from recovery.search import Query, parse
from recovery.store.views.ranges import Range

PAGE = 1000


def stored_search(resources: Resources, operation: Operation) -> Query:
    """Return the search that an operation was ordered with. Its relative times count from the order."""
    return parse(operation.selection, operation.asked_at or resources.store.now(), is_stored=True)


class Selected:
    """The processes of an operation's selection."""

    def __init__(self, resources: Resources, operation: Operation) -> None:
        self._search = resources.store.search
        self._chooses = bool(operation.selection)
        self._query = stored_search(resources, operation)

    def all(self, part: Range) -> list[str] | None:
        """All processes of a range; None for every one there is, which nobody has to list."""
        if not self._chooses:
            return None
        found = list[str]()
        while page := self._search.page(self._query, found[-1] if found else None, PAGE, part=part):
            found += page
        return found

    def at_least(self, count: int) -> bool:
        """Whether there are so many."""
        return len(self._search.page(self._query, None, count)) >= count

    def page(self, part: OperationRange, limit: int) -> list[str]:
        """The next processes of a range, after its cursor."""
        return self._search.page(self._query, part.cursor, limit, part=Range(part.start, part.end))
