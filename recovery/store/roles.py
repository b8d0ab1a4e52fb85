"""What MongoDB's users may do with our collections: a role for each kind of program or person, with what it needs.

    recoveryReader     looks: `status`, `show`, `check`, `doctor`, Grafana
    recoveryClient     starts processes and asks for their results; sees nobody's tasks
    recoveryWorker     workers, beat, sweeps; creates no collection
    recoveryOperator   restarts, aborts, blocks, sets; makes collections, indexes and validators: `recovery init`

None of them may drop anything, or touch another database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pymongo.database import Database
from pymongo.errors import OperationFailure

from recovery.store import schema
from recovery.store.client import Document

Rights = Mapping[str, frozenset[str]]
"""{collection: what may be done with it}; `""` is the database as a whole."""

READER, CLIENT, WORKER, OPERATOR = "recoveryReader", "recoveryClient", "recoveryWorker", schema.OPERATOR

_RECORDS = (schema.PROCESSES, schema.TASKS, schema.DECISIONS, schema.GRAPHS)
_SETTINGS = (schema.ACTORS, schema.PROCESS_TYPES)
_EXISTS = 51002
"""MongoDB's code for a role that is there."""


def _rights(*parts: tuple[Iterable[str], str]) -> Rights:
    """Return all rights that any of these (collections, actions with spaces between) gives."""
    found: dict[str, frozenset[str]] = {}
    for collections, actions in parts:
        for name in collections:
            found[name] = found.get(name, frozenset()) | frozenset(actions.split())
    return found


_LOOK = (([""], "listCollections"), (schema.ALL, "find listIndexes collStats"))
_REPAIR = (
    # Tasks that are done again schedule theirs anew; and what is over is collected.
    (_RECORDS, "insert remove"),
    ((schema.ORDERS,), "insert remove"),
    # A record that can't be read is postponed, though it is not valid. Tasks are immutable.
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
        # An upsert, since only an update knows the database's clock.
        ((schema.PROCESSES,), "find insert update"),
        ((schema.TASKS, schema.DECISIONS, schema.GRAPHS), "insert"),
        ((*_SETTINGS, schema.MARKERS), "find"),
        # What `recovery start` counted.
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
        ((schema.ACTORS,), "insert"),  # an upsert: an actor that was not to be forgotten is put back
        ((schema.ACTORS, schema.QUEUES, schema.SCHEDULES), "remove"),
        ((schema.WORKERS,), "update"),  # what they told of a queue that is forgotten
        (schema.ALL, "createCollection createIndex collMod"),
    ),
}


@dataclass(frozen=True, slots=True)
class HeldRights:
    """What the user may do that we came as: of each role what it lacks; nothing, if it may do all of it."""

    user: str
    lacking: Mapping[str, Rights]


def definitions() -> Iterator[tuple[str, list[Document]]]:
    """(role, [{collection, actions}]), in order, as a program reads them."""
    for name, rights in ROLES.items():
        yield name, [{"collection": key, "actions": sorted(actions)} for key, actions in sorted(rights.items())]


def create(database: Database[Document]) -> None:
    """Make the roles in this database, or bring them up to date: for an administrator of its users."""
    for name, rights in definitions():
        privileges = [
            {"resource": {"db": database.name, "collection": one["collection"]}, "actions": one["actions"]}
            for one in rights
        ]
        try:
            database.command("createRole", name, privileges=privileges, roles=[])
        except OperationFailure as error:
            if error.code != _EXISTS:
                raise
            database.command("updateRole", name, privileges=privileges, roles=[])


def held(database: Database[Document]) -> HeldRights | None:
    """What we may do; None where nobody logs in. Everyone may ask this of himself."""
    found = database.command("connectionStatus", showPrivileges=True)["authInfo"]
    users = found["authenticatedUsers"]
    if not users:
        return None
    privileges = found["authenticatedUserPrivileges"]
    lacking = {name: _lacking(rights, privileges, database.name) for name, rights in ROLES.items()}
    return HeldRights(users[0]["user"], lacking)


def _lacking(rights: Rights, privileges: Iterable[Document], database: str) -> Rights:
    """Return those of these rights that no privilege gives."""
    given = [(one["resource"], frozenset(one["actions"])) for one in privileges]
    found = {}
    for name, wanted in rights.items():
        covering = [actions for resource, actions in given if _covers(resource, database, name)]
        if left := wanted.difference(*covering):
            found[name] = left
    return found


def _covers(resource: Document, database: str, collection: str) -> bool:
    """Whether what is allowed on a resource is so on this collection."""
    if resource.get("anyResource"):
        return True
    return resource.get("db") in ("", database) and resource.get("collection") in ("", collection)
