"""Queries and updates of what operators write down: the audit log, which says what they did, and the searches to
which they gave a name. Both are written with majority, and searches are read as a majority has them."""

from __future__ import annotations

from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from recovery.records import AuditEntry, SavedSearch, to_document
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import literal
from recovery.store.record_reading import readable


@translated
class AuditLog:
    """The collection `auditLog`. An entry is written before something is done, and completed after it."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._entries = committed(collection)

    def begin(self, entry: AuditEntry) -> None:
        """Write down what is about to be done, under a new id."""
        fields = {key: literal(value) for key, value in to_document(entry).items() if key != "_id"}
        self._entries.update_one({"_id": entry.id}, [{"$set": {**fields, "at": "$$NOW"}}], upsert=True)

    def end(self, key: str, outcome: str, operation: int | None = None) -> None:
        """Write down what came of it."""
        fields = {"outcome": literal(outcome), "endedAt": "$$NOW"}
        if operation is not None:
            fields["operation"] = literal(operation)
        self._entries.update_one({"_id": key, "outcome": None}, [{"$set": fields}])

    def newest(
        self, limit: int, *, what: str | None = None, target: str | None = None, operation: int | None = None
    ) -> list[AuditEntry]:
        """The last entries, the newest first; of what begins so, of this target, of this operation. Ids are in order of
        time. Index `target`, or `_id` from its end."""
        query: Document = {}
        if what is not None:
            query["what"] = {"$gte": what, "$lt": what + "\U0010ffff"}
        if target is not None:
            query["target"] = target
        if operation is not None:
            query["operation"] = operation
        return list(readable(AuditEntry, self._entries.find(query).sort("_id", -1).limit(limit)))


@translated
class SavedSearches:
    """The collection `savedSearches`: by a name processes are selected.

    Every write names the version that it was decided from, so of two who change a search at once one does.
    """

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
