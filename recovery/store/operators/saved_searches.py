"""Queries and updates of the SavedSearch records: what operators gave a name.

Written with majority, and read as a majority has it: by a name processes are selected. Every write names the version
that it was decided from, so of two who change one at once one does.
"""

from __future__ import annotations

from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from recovery.records import SavedSearch, to_document
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.record_reading import readable


@translated
class SavedSearches:
    """The collection `savedSearches`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._searches = committed(collection)

    def insert(self, search: SavedSearch) -> bool:
        """Save a search under a new name; False: there is one of this name."""
        try:
            self._searches.insert_one(to_document(search))
        except DuplicateKeyError:
            return False
        return True

    def replace(self, search: SavedSearch) -> bool:
        """Save a search in the place of the one in the version that it holds, as the next; False: somebody was
        first."""
        document = to_document(search.evolve(version=search.version + 1))
        changed = self._searches.replace_one({"_id": search.id, "version": search.version}, document)
        return changed.modified_count == 1

    def remove(self, search: SavedSearch) -> bool:
        """Remove a search in this version; False: somebody was first."""
        return self._searches.delete_one({"_id": search.id, "version": search.version}).deleted_count == 1

    def all(self) -> dict[str, SavedSearch]:
        """All that can be read, by name, as a majority has them. There are as many as people gave names."""
        return {search.id: search for search in readable(SavedSearch, self._searches.find().sort("_id", 1))}

    def texts(self) -> dict[str, str]:
        """{name: text}, as the search language asks for them."""
        return {name: search.text for name, search in self.all().items()}
