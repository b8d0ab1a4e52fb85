"""Queries and updates of the settings of actors and process types.

One document contains both what the code of the workers declares and what operators set. Neither write changes the
other's fields: a worker that starts replaces what its code declares, and keeps `overrides`, `blockedAt`, `disabled` and
`enabledAt`, and `freed` and `rejected`, which `hung` and `rejected_writes` write.

All reads and writes are `committed`. Collections are small (one document for each name), so most queries read all of
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic

from pymongo import UpdateOne
from pymongo.collection import Collection

from recovery.errors import DamagedRecord
from recovery.records import (
    ActorPreferences,
    ProcessTypePreferences,
    Stored,
    TypeDisabled,
    field_name,
    from_document,
    to_document,
)
from recovery.records.preferences import P, fits, setting_names, within_limits
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import literal
from recovery.store.record_reading import tell


@translated
class KeptSettings(Generic[P]):
    """A collection of settings, with one document for each name."""

    def __init__(self, collection: Collection[Document], kind: type[P]) -> None:
        # `committed`, because operators are told what they have set, and no task may begin because of a setting that a
        # failover undoes.
        self._collection = committed(collection)
        self._kind: type[P] = kind
        self._last_readable: dict[str, P] = {}

    def save(self, told: Iterable[P], application: str | None = None) -> None:
        """Replace what the code declares for these names. What operators set is kept.

        Args:
            told: The settings that the code declares.
            application: Name of the application that declares them.
        """
        owner: Document = {"application": literal(application)} if application is not None else {}
        kept_fields = {"overrides": "$overrides", "blockedAt": "$blockedAt", "freed": "$freed", "disabled": "$disabled"}
        kept_fields |= {"enabledAt": "$enabledAt", "rejected": "$rejected"}
        updates = [
            UpdateOne(
                {"_id": preferences.id},
                [{"$replaceWith": {"$mergeObjects": [literal(to_document(preferences)), owner, kept_fields]}}],
                upsert=True,
            )
            for preferences in told
        ]
        if updates:
            self._collection.bulk_write(updates, ordered=False)

    def stored(self) -> dict[str, Stored[P]]:
        """Return all documents, decoded, by name."""
        return {
            document["_id"]: self._decoded(document)
            for document in self._collection.find()
            if isinstance(document["_id"], str)
        }

    def applications(self) -> dict[str, list[str]]:
        """Return {application: names that its workers declared}. Names that an earlier version of the library saved are
        left out.
        """
        names: dict[str, list[str]] = {}
        for document in self._collection.find({"application": {"$type": "string"}}, {"application": True}).sort(
            "_id", 1
        ):
            if isinstance(document["_id"], str):
                names.setdefault(document["application"], []).append(document["_id"])
        return names

    def get(self, name: str) -> Stored[P] | None:
        """Return the settings of this name, or None."""
        document = self._collection.find_one({"_id": name})
        return self._decoded(document) if document else None

    def all(self) -> dict[str, P]:
        """Return the effective settings of all names, by name."""
        return {name: stored.effective for name, stored in self.stored().items()}

    def override(self, name: str, changes: Mapping[str, Any]) -> bool:
        """Set these settings, which then take precedence over the code. Return False if the name is unknown."""
        fields = {f"overrides.{field_name(setting)}": value for setting, value in changes.items()}
        return self._collection.update_one({"_id": name}, {"$set": fields}).matched_count == 1

    def unset(self, name: str, settings: Sequence[str]) -> bool:
        """Remove these overrides, so that the code's values apply again. Return False if the name is unknown."""
        fields = {f"overrides.{field_name(setting)}": "" for setting in settings}
        return self._collection.update_one({"_id": name}, {"$unset": fields}).matched_count == 1

    def _decoded(self, document: Document) -> Stored[P]:
        stored_overrides = document.get("overrides")
        stored_overrides = stored_overrides if isinstance(stored_overrides, dict) else {}
        # Skip settings that only another version knows, and values that are not allowed: they must not stop a claim or
        # a scan.
        overrides = {
            name: stored_overrides[key]
            for name in setting_names(self._kind)
            if (key := field_name(name)) in stored_overrides
            and stored_overrides[key] is not None
            and fits(self._kind, name, stored_overrides[key])
        }
        self._last_readable[document["_id"]] = code = within_limits(self._code(document))
        return Stored(code, overrides, document.get("blockedAt") is not None, _disabled(document.get("disabled")))

    def _code(self, document: Document) -> P:
        """Return the settings that the code declares.

        A field that can't be read keeps its last readable value, or its default.
        """
        try:
            return from_document(self._kind, document)
        except DamagedRecord as damage:
            tell(damage)
            undamaged = {key: value for key, value in document.items() if key not in damage.fields}
            code, last_readable = from_document(self._kind, undamaged), self._last_readable.get(document["_id"])
            if last_readable is None:
                return code
            damaged = [name for name in setting_names(self._kind) if field_name(name) in damage.fields]
            return code.evolve(**{name: getattr(last_readable, name) for name in damaged})


@translated
class Actors(KeptSettings[ActorPreferences]):
    """The collection `actors`: the settings of every actor that a worker of any application has served."""

    def __init__(self, collection: Collection[Document]) -> None:
        super().__init__(collection, ActorPreferences)

    def blocked(self) -> list[str]:
        """Return the names of the blocked actors."""
        return [document["_id"] for document in self._collection.find({"blockedAt": {"$ne": None}}, {"_id": True})]

    def block(self, name: str) -> bool:
        """Block an actor, so that no task of it begins. Return False if it is unknown or blocked already."""
        changed = self._collection.update_one({"_id": name, "blockedAt": None}, [{"$set": {"blockedAt": "$$NOW"}}])
        return changed.modified_count == 1

    def unblock(self, name: str) -> bool:
        """Unblock an actor. Return False if it is unknown or not blocked."""
        changed = self._collection.update_one({"_id": name, "blockedAt": {"$ne": None}}, {"$unset": {"blockedAt": ""}})
        return changed.modified_count == 1

    def forget(self, name: str) -> Document | None:
        """Remove an actor that is not blocked. Return the removed document, or None if there is no such actor."""
        return self._collection.find_one_and_delete({"_id": name, "blockedAt": None})

    def restore(self, document: Document) -> None:
        """Insert a document that `forget` removed, unless a worker has saved the actor again."""
        self._collection.update_one({"_id": document["_id"]}, {"$setOnInsert": document}, upsert=True)


@translated
class ProcessTypes(KeptSettings[ProcessTypePreferences]):
    """The collection `processTypes`: the settings of every process type that a worker has served."""

    def __init__(self, collection: Collection[Document]) -> None:
        super().__init__(collection, ProcessTypePreferences)

    def disable(self, name: str, by: str, reason: str) -> bool:
        """Disable a process type, so that no process of it is started. Return False if it is unknown or disabled
        already.
        """
        details = {"at": "$$NOW", "by": literal(by), "reason": literal(reason)}
        changed = self._collection.update_one({"_id": name, "disabled": None}, [{"$set": {"disabled": details}}])
        return changed.modified_count == 1

    def disable_for_failure(self, name: str, by: str, reason: str, failed_at: datetime) -> bool:
        """Disable a process type because one of its processes failed at `failed_at`.

        Returns:
            False if the type is unknown or disabled already, or was enabled after the failure.
        """
        details = {"at": "$$NOW", "by": literal(by), "reason": literal(reason)}
        not_enabled_since = {"$or": [{"enabledAt": None}, {"enabledAt": {"$lt": failed_at}}]}
        changed = self._collection.update_one(
            {"_id": name, "disabled": None, **not_enabled_since}, [{"$set": {"disabled": details}}]
        )
        return changed.modified_count == 1

    def enable(self, name: str) -> bool:
        """Enable a process type, and note the time. Return False if it is unknown or not disabled."""
        changed = self._collection.update_one(
            {"_id": name, "disabled": {"$ne": None}}, [{"$set": {"enabledAt": "$$NOW"}}, {"$unset": "disabled"}]
        )
        return changed.modified_count == 1


def _disabled(value: Any) -> TypeDisabled | None:
    """Return who disabled a type and why. If another program wrote an unreadable value, the details are empty."""
    if value is None:
        return None
    try:
        return from_document(TypeDisabled, value)
    except (DamagedRecord, AttributeError):
        return TypeDisabled()
