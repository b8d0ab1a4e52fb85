"""The processes of an operation: those that match its search, and in a range with a priority only those of its
types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recovery.engine import Resources
from recovery.records import Operation, OperationRange
from recovery.search import And, Node, Not, Or, Query, Term, parse
from recovery.search.query import Comparison
from recovery.store.views.ranges import Range

SELECTED = 1000
"""Process ids of a selection that are read at once."""


def stored_search(resources: Resources, operation: Operation) -> Query:
    """Return the search that an operation was ordered with. Its relative times count from the order."""
    return parse(operation.selection, operation.asked_at or resources.store.now(), is_stored=True)


def narrowed(query: Query, only: Sequence[str], but: Sequence[str]) -> Query:
    """Return a search for the processes of another search that have one of the types `only`, and none of the types
    `but`."""
    parts = [query.tree]
    if only:
        parts.append(_of_types(only))
    if but:
        parts.append(Not(_of_types(but)))
    return query if len(parts) == 1 else replace(query, tree=And(tuple(parts)))


def _of_types(names: Sequence[str]) -> Node:
    terms = tuple(Term("type", Comparison.IS, name) for name in names)
    return terms[0] if len(terms) == 1 else Or(terms)


class Selected:
    """The processes of an operation's selection. In a range with a priority, only those of its types."""

    def __init__(self, resources: Resources, operation: Operation, part: OperationRange | None = None) -> None:
        self._search = resources.store.search
        only, but = (part.only, part.but) if part is not None else ((), ())
        self._is_filtered = bool(operation.selection or only)
        self._query = narrowed(stored_search(resources, operation), only, but)

    def all(self, part: Range) -> list[str] | None:
        """Return all selected process ids of a range. None if every process is selected."""
        if not self._is_filtered:
            return None
        process_ids = list[str]()
        while page := self._search.page(self._query, process_ids[-1] if process_ids else None, SELECTED, part=part):
            process_ids += page
        return process_ids

    def at_least(self, count: int) -> bool:
        """Return whether at least `count` processes are selected."""
        return len(self._search.page(self._query, None, count)) >= count

    def page(self, part: OperationRange, limit: int) -> list[str]:
        """Return the next process ids of a range, after its cursor."""
        return self._search.page(self._query, part.cursor, limit, part=Range(part.start, part.end))
