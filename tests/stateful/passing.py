"""Time that passes at once: every time in the database is moved into the past.

That is the same as a later "now": the product compares times only with the database's own clock and with each other,
so moving all of them by the same amount changes no comparison between two of them, and each one with
the clock exactly as waiting would. What it does not move is a time that somebody holds in memory. A message's age is
in its id, and is corrected here by those who read it. A scanner that stands between its look and its write holds
`queuedAt` of what it judged, and may for that requeue a message that was pushed after its look: one message more,
never one less, and duplicates are among the faults anyhow.

The tests' timeouts are minutes, and no test takes one: real time decides nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import ReplaceOne, WriteConcern
from pymongo.database import Database

from recovery.store import definitions
from tests.stateful.documents import read_all


class Passing:
    """Time of one database."""

    def __init__(self, database: Database[Any]) -> None:
        self._database = database
        self._moves: list[tuple[datetime, timedelta]] = []

    def pass_by(self, seconds: float) -> None:
        """Let so much time pass."""
        if not seconds:
            return
        by = timedelta(seconds=seconds)
        for name, documents in read_all(self._database, definitions.VALIDATORS).items():
            moved = [
                ReplaceOne({"_id": key}, later)
                for key, document in documents.items()
                if (later := _moved(document, by)) != document
            ]
            if moved:
                collection = self._database[name].with_options(write_concern=WriteConcern(1))
                collection.bulk_write(moved, ordered=False)
        self._moves.append((datetime.now(UTC), by))

    def corrected(self, moment: datetime | None) -> datetime | None:
        """A time that was read before some time passed, as the database has it now."""
        if moment is None:
            return None
        return moment - sum((by for when, by in self._moves if when > moment), timedelta())


def _moved(value: Any, by: timedelta) -> Any:
    if isinstance(value, datetime):
        return value - by
    if isinstance(value, dict):
        return {key: _moved(item, by) for key, item in value.items()}
    return [_moved(item, by) for item in value] if isinstance(value, list) else value
