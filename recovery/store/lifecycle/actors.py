"""Queries and updates of settings: what workers tell of their actors and process types, and what operators set.

Both stand in one document and are written by different people, so neither write touches the other's fields: a
worker that starts replaces what the code says and keeps `overrides`, `blockedAt` and `disabled`; and `freed`, which
`hung` keeps.
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
    """A collection of settings, one document per name."""

    def __init__(self, collection: Collection[Document], kind: type[P]) -> None:
        # What an operator was told is kept, and no task is begun for a word that may be taken back.
        self._collection = committed(collection)
        self._kind: type[P] = kind
        self._good: dict[str, P] = {}

    def save(self, told: Iterable[P], application: str | None = None) -> None:
        """Save what the code of an application says over what it said; what an operator set stays."""
        owner: Document = {"application": literal(application)} if application is not None else {}
        kept = {"overrides": "$overrides", "blockedAt": "$blockedAt", "freed": "$freed", "disabled": "$disabled"}
        kept["enabledAt"] = "$enabledAt"
        updates = [
            UpdateOne(
                {"_id": one.id},
                [{"$replaceWith": {"$mergeObjects": [literal(to_document(one)), owner, kept]}}],
                upsert=True,
            )
            for one in told
        ]
        if updates:
            self._collection.bulk_write(updates, ordered=False)

    def stored(self) -> dict[str, Stored[P]]:
        """What is kept of all of them, by name. There are as many as actors or process types."""
        return {d["_id"]: self._decoded(d) for d in self._collection.find() if isinstance(d["_id"], str)}

    def applications(self) -> dict[str, list[str]]:
        """{application: what its workers saved here}. What an earlier version saved is of none."""
        found: dict[str, list[str]] = {}
        for document in self._collection.find({"application": {"$type": "string"}}, {"application": True}).sort(
            "_id", 1
        ):
            if isinstance(document["_id"], str):
                found.setdefault(document["application"], []).append(document["_id"])
        return found

    def get(self, name: str) -> Stored[P] | None:
        """What is kept of one of them."""
        document = self._collection.find_one({"_id": name})
        return self._decoded(document) if document else None

    def all(self) -> dict[str, P]:
        """Settings that hold, of all that are known, by name."""
        return {name: stored.effective for name, stored in self.stored().items()}

    def override(self, name: str, changes: Mapping[str, Any]) -> bool:
        """Set these settings over what the code says; False: nothing of that name is known."""
        fields = {f"overrides.{field_name(setting)}": value for setting, value in changes.items()}
        return self._collection.update_one({"_id": name}, {"$set": fields}).matched_count == 1

    def unset(self, name: str, settings: Sequence[str]) -> bool:
        """Let the code's word hold again for these settings; False: nothing of that name is known."""
        fields = {f"overrides.{field_name(setting)}": "" for setting in settings}
        return self._collection.update_one({"_id": name}, {"$unset": fields}).matched_count == 1

    def _decoded(self, document: Document) -> Stored[P]:
        over = document.get("overrides")
        over = over if isinstance(over, dict) else {}
        # What only another version knows, or could have set, is passed over: it must not end a claim or a scan.
        overrides = {
            name: over[key]
            for name in setting_names(self._kind)
            if (key := field_name(name)) in over and over[key] is not None and fits(self._kind, name, over[key])
        }
        self._good[document["_id"]] = code = within_limits(self._code(document))
        return Stored(code, overrides, document.get("blockedAt") is not None, _disabled(document.get("disabled")))

    def _code(self, document: Document) -> P:
        """What the code says; of what can't be read what it said when that could be, or the default."""
        try:
            return from_document(self._kind, document)
        except DamagedRecord as damage:
            tell(damage)
            rest = {key: value for key, value in document.items() if key not in damage.fields}
            readable, good = from_document(self._kind, rest), self._good.get(document["_id"])
            if good is None:
                return readable
            damaged = [name for name in setting_names(self._kind) if field_name(name) in damage.fields]
            return readable.evolve(**{name: getattr(good, name) for name in damaged})


@translated
class Actors(KeptSettings[ActorPreferences]):
    """The collection `actors`: the settings of each actor that a worker of any application has served."""

    def __init__(self, collection: Collection[Document]) -> None:
        super().__init__(collection, ActorPreferences)

    def blocked(self) -> list[str]:
        """Names of the actors that are blocked. There are as many documents as actors."""
        return [document["_id"] for document in self._collection.find({"blockedAt": {"$ne": None}}, {"_id": True})]

    def block(self, name: str) -> bool:
        """Have no task of this actor begun any more; False: it is blocked already, or not known."""
        changed = self._collection.update_one({"_id": name, "blockedAt": None}, [{"$set": {"blockedAt": "$$NOW"}}])
        return changed.modified_count == 1

    def unblock(self, name: str) -> bool:
        """Have tasks of this actor begun again; False: it was not blocked, or is not known."""
        changed = self._collection.update_one({"_id": name, "blockedAt": {"$ne": None}}, {"$unset": {"blockedAt": ""}})
        return changed.modified_count == 1

    def forget(self, name: str) -> Document | None:
        """Remove an actor that is not blocked: the document as it was; None: there is none such."""
        return self._collection.find_one_and_delete({"_id": name, "blockedAt": None})

    def restore(self, document: Document) -> None:
        """Put back what was removed, unless a worker has told of the actor since."""
        self._collection.update_one({"_id": document["_id"]}, {"$setOnInsert": document}, upsert=True)


@translated
class ProcessTypes(KeptSettings[ProcessTypePreferences]):
    """The collection `processTypes`: the settings of each process type that a worker has served."""

    def __init__(self, collection: Collection[Document]) -> None:
        super().__init__(collection, ProcessTypePreferences)

    def disable(self, name: str, by: str, reason: str) -> bool:
        """Have no process of this type started any more; False: it is disabled already, or not known."""
        said = {"at": "$$NOW", "by": literal(by), "reason": literal(reason)}
        changed = self._collection.update_one({"_id": name, "disabled": None}, [{"$set": {"disabled": said}}])
        return changed.modified_count == 1

    def disable_for_failure(self, name: str, by: str, reason: str, failed_at: datetime) -> bool:
        """Disable a process type because a process of it failed at this moment.

        Returns:
            False if the type is disabled already, is not known, or was enabled after the failure.
        """
        said = {"at": "$$NOW", "by": literal(by), "reason": literal(reason)}
        not_since = {"$or": [{"enabledAt": None}, {"enabledAt": {"$lt": failed_at}}]}
        changed = self._collection.update_one(
            {"_id": name, "disabled": None, **not_since}, [{"$set": {"disabled": said}}]
        )
        return changed.modified_count == 1

    def enable(self, name: str) -> bool:
        """Have processes of this type started again; False: it was not disabled, or is not known."""
        changed = self._collection.update_one(
            {"_id": name, "disabled": {"$ne": None}}, [{"$set": {"enabledAt": "$$NOW"}}, {"$unset": "disabled"}]
        )
        return changed.modified_count == 1


def _disabled(value: Any) -> TypeDisabled | None:
    """What an operator said; of another program's word only that there is one."""
    if value is None:
        return None
    try:
        return from_document(TypeDisabled, value)
    except (DamagedRecord, AttributeError):
        return TypeDisabled()
