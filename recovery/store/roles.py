"""Roles for MongoDB's users: what each kind of program or person may do with our collections.

    recoveryReader     reads: `status`, `show`, `check`, `doctor`, Grafana
    recoveryClient     starts processes and reads their results; can't read tasks
    recoveryWorker     workers, beat, sweeps; can't create collections
    recoveryOperator   restarts, aborts, blocks, changes settings; creates collections, indexes and validators
                       (`recovery init`)

No role may drop anything, or use another database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pymongo.database import Database
from pymongo.errors import OperationFailure

from recovery.store import schema
from recovery.store.client import Document

Rights = Mapping[str, frozenset[str]]
"""{collection: allowed actions}. `""` stands for the database as a whole."""

READER, CLIENT, WORKER, OPERATOR = "recoveryReader", "recoveryClient", "recoveryWorker", schema.OPERATOR

_RECORDS = (schema.PROCESSES, schema.TASKS, schema.DECISIONS, schema.GRAPHS)
_SETTINGS = (schema.ACTORS, schema.PROCESS_TYPES)
_EXISTS = 51002
"""MongoDB's code for a role that exists already."""


def _rights(*parts: tuple[Iterable[str], str]) -> Rights:
    """Return all rights that any of these (collections, space-separated actions) gives."""
    rights: dict[str, frozenset[str]] = {}
    for collections, actions in parts:
        for name in collections:
            rights[name] = rights.get(name, frozenset()) | frozenset(actions.split())
    return rights


_LOOK = (([""], "listCollections"), (schema.ALL, "find listIndexes collStats"))
_REPAIR = (
    # A task that is run again may schedule other tasks than before, and ended processes are removed.
    (_RECORDS, "insert remove"),
    ((schema.ORDERS,), "insert remove"),
    # A record that can't be read is postponed although it is invalid. Tasks are immutable.
    ((schema.PROCESSES, schema.DECISIONS, schema.GRAPHS), "update bypassDocumentValidation"),
    ((schema.INTERRUPTIONS,), "insert update remove"),
    ((schema.MARKERS,), "insert update"),
    ((schema.QUEUES, schema.SCANNERS, schema.CENSUS, schema.LEFT_COUNTS), "insert update"),
    ((schema.SCHEDULES,), "insert update bypassDocumentValidation"),
    ((schema.OPERATIONS,), "insert update bypassDocumentValidation"),
    ((schema.OPERATION_RANGES, schema.OPERATION_RESULTS, schema.AUDIT_LOG), "insert update"),
)
ROLES: Mapping[str, Rights] = {
    READER: _rights(*_LOOK),
    CLIENT: _rights(
        # Starts are upserts, because only an update can use the database's clock.
        ((schema.PROCESSES,), "find insert update"),
        ((schema.TASKS, schema.DECISIONS, schema.GRAPHS), "insert"),
        ((*_SETTINGS, schema.MARKERS), "find"),
        # `recovery start` saves its counts, which a worker adds to its metrics.
        ((schema.LEFT_COUNTS,), "insert update"),
    ),
    WORKER: _rights(
        *_LOOK,
        *_REPAIR,
        (_SETTINGS, "insert update"),
        ((schema.WORKERS,), "insert update remove"),
        ((schema.LEFT_COUNTS,), "remove"),
    ),
    OPERATOR: _rights(
        *_LOOK,
        *_REPAIR,
        (_SETTINGS, "update"),
        ((schema.SAVED_SEARCHES, schema.SAVED_OPERATIONS), "insert update remove"),
        ((schema.ACTORS,), "insert"),  # an upsert restores an actor that must not be forgotten
        ((schema.ACTORS, schema.QUEUES, schema.SCHEDULES), "remove"),
        ((schema.WORKERS,), "update"),  # removes a forgotten queue from the workers' records
        (schema.ALL, "createCollection createIndex collMod"),
    ),
}
"""{role: its rights}."""


@dataclass(frozen=True, slots=True)
class HeldRights:
    """The current user's name, and the rights that it lacks."""

    user: str
    lacking: Mapping[str, Rights]
    """{role: rights of this role that the user lacks}. Empty rights if the user may do everything that the role allows.
    """


def definitions() -> Iterator[tuple[str, list[Document]]]:
    """Yield (role, [{collection, actions}]) for other programs, in a fixed order."""
    for name, rights in ROLES.items():
        yield name, [{"collection": key, "actions": sorted(actions)} for key, actions in sorted(rights.items())]


def create(database: Database[Document]) -> None:
    """Create these roles in the database, or update them. Only an administrator of users may do so."""
    for name, rights in definitions():
        privileges = [
            {"resource": {"db": database.name, "collection": right["collection"]}, "actions": right["actions"]}
            for right in rights
        ]
        try:
            database.command("createRole", name, privileges=privileges, roles=[])
        except OperationFailure as error:
            if error.code != _EXISTS:
                raise
            database.command("updateRole", name, privileges=privileges, roles=[])


def held(database: Database[Document]) -> HeldRights | None:
    """Return what the current user may do, or None if nobody has logged in.

    Every user may ask this about itself.
    """
    auth_info = database.command("connectionStatus", showPrivileges=True)["authInfo"]
    users = auth_info["authenticatedUsers"]
    if not users:
        return None
    privileges = auth_info["authenticatedUserPrivileges"]
    lacking = {name: _lacking(rights, privileges, database.name) for name, rights in ROLES.items()}
    return HeldRights(users[0]["user"], lacking)


def _lacking(rights: Rights, privileges: Iterable[Document], database: str) -> Rights:
    """Return those of these rights that no privilege gives."""
    given = [(privilege["resource"], frozenset(privilege["actions"])) for privilege in privileges]
    lacking = {}
    for name, wanted in rights.items():
        covering = [actions for resource, actions in given if _covers(resource, database, name)]
        if missing := wanted.difference(*covering):
            lacking[name] = missing
    return lacking


def _covers(resource: Document, database: str, collection: str) -> bool:
    """Return whether a privilege on this resource applies to this collection."""
    if resource.get("anyResource"):
        return True
    return resource.get("db") in ("", database) and resource.get("collection") in ("", collection)
