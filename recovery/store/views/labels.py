"""Labels that processes have: their names, and the values of one, for shells that complete them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pymongo.database import Database

from recovery.records.search_names import label_text
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated

INDEX = "labels"
LAST = "\U0010ffff"
"""After all that begins as a text before it."""


@translated
class Labels:
    """Queries over the collection `processes`, as a majority has it. Each name or value is one seek in index `labels`,
    however many processes have it."""

    def __init__(self, database: Database[Document]) -> None:
        self._processes = committed(database[schema.PROCESSES])

    def names(self, start: str, limit: int) -> list[str]:
        """Up to `limit` names of labels that begin so."""
        found = self._leaps(start, limit, lambda label: label_text(_name(label), LAST))
        return [_name(label) for label in found]

    def values(self, name: str, start: str, limit: int) -> list[str]:
        """Up to `limit` values of the label of this name that begin so."""
        found = self._leaps(label_text(name, start), limit, lambda label: label)
        return [label.partition("=")[2] for label in found]

    def _leaps(self, start: str, limit: int, end: Callable[[str], str]) -> Iterator[str]:
        """The first label that begins so, then the first after what `end` says of it, and so on."""
        bounds = {"$gte": start, "$lt": f"{start}{LAST}"}
        for _ in range(limit):
            # One label within both bounds, else each is another's; and in the order of the index, since to be sorted by
            # them is to be sorted by the first of all that a process has.
            query = {"labels": {"$exists": True, "$elemMatch": bounds}}
            found = list(self._processes.find(query, {"labels": True}).hint(INDEX).limit(1))
            among = [label for one in found for label in one["labels"] if _within(label, bounds)]
            if not among:
                return
            yield min(among)
            bounds = {"$gt": end(min(among)), "$lt": bounds["$lt"]}


def _name(label: str) -> str:
    return label.partition("=")[0]


def _within(label: object, bounds: dict[str, str]) -> bool:
    return isinstance(label, str) and bounds.get("$gte", "") <= label < bounds["$lt"] and label > bounds.get("$gt", "")
