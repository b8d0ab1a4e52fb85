"""What has to be in the database before there is a record: collections, validators, indexes, and users' roles."""

from __future__ import annotations

import logging

from pymongo.database import Database

from recovery.store import creation, drift, roles
from recovery.store.client import Document
from recovery.store.driver_errors import translated
from recovery.store.operators import orders

log = logging.getLogger(__name__)


@translated
class Layout:
    """Looks after one database's."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def create(self) -> None:
        """Create what is missing, leave what is there: see `creation.create`. Raises ServerRefused, IndexConflict."""
        creation.create(self._database, self._adopt)

    def missing(self) -> list[str]:
        """What `create` makes again, or brings up to date, each in a few words. Reads metadata only."""
        return creation.missing(self._database)

    def different(self) -> dict[str, str]:
        """{index that is there but not as it should be: the command that drops it}: only then can it be made again."""
        return drift.different(self._database)

    def has_graphs(self) -> bool:
        """Whether the collection of graphs is there: one round trip, for what can't afford `create` each time."""
        return creation.has_graphs(self._database)

    def create_roles(self) -> None:
        """Make the roles of MongoDB's users, or bring them up to date: for an administrator of its users."""
        roles.create(self._database)

    def _adopt(self) -> None:
        if count := orders.adopt(self._database):
            log.info("%d processes were marked before there were orders: what they are marked for is ordered", count)

    def drop(self) -> None:
        """Remove the database, with all that is in it: what a demo leaves is nobody's."""
        self._database.client.drop_database(self._database.name)
