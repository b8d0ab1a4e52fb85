"""What has to be in the database before there is a record: collections, validators, indexes, and users' roles.

`create` is idempotent: `recovery init` and every worker call it. It drops nothing: an index that is in the way of one
of ours, or that has MongoDB remove records which nobody asked it to remove, is found by `different`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pymongo.database import Database
from pymongo.errors import CollectionInvalid, OperationFailure

from recovery.errors import ServerRefused
from recovery.store import definitions, roles
from recovery.store.client import Document
from recovery.store.driver_errors import is_denied, translated
from recovery.store.operators import command_records
from recovery.store.schema import GRAPHS, OPERATOR, ORDERS

log = logging.getLogger(__name__)

COLLECTION, VALIDATOR, INDEX = "collection", "validator", "index"
_RIGHTS = {COLLECTION: "createCollection", VALIDATOR: "collMod", INDEX: "createIndex"}
"""MongoDB's rights that it takes to make them."""


@translated
class Layout:
    """Looks after one database's."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def create(self) -> None:
        """Create what is missing, leave what is there: see `create`. Raises ServerRefused, IndexConflict."""
        create(self._database, self._adopt)

    def missing(self) -> list[str]:
        """What `create` makes again, or brings up to date, each in a few words. Reads metadata only."""
        return missing(self._database)

    def different(self) -> dict[str, str]:
        """{index that is there but not as it should be: the command that drops it}: only then can it be made again."""
        return different(self._database)

    def has_graphs(self) -> bool:
        """Whether the collection of graphs is there: one round trip, for what can't afford `create` each time."""
        return has_graphs(self._database)

    def create_roles(self) -> None:
        """Make the roles of MongoDB's users, or bring them up to date: for an administrator of its users."""
        roles.create(self._database)

    def _adopt(self) -> None:
        if count := command_records.adopt(self._database):
            log.info("%d processes were marked before there were orders: what they are marked for is ordered", count)

    def drop(self) -> None:
        """Remove the database, with all that is in it: what a demo leaves is nobody's."""
        self._database.client.drop_database(self._database.name)


def has_graphs(database: Database[Document]) -> bool:
    """Whether the collection of graphs is there: one round trip, for what can't afford `create` each time."""
    return bool(database.list_collection_names(filter={"name": GRAPHS}))


def create(database: Database[Document], adopt: Callable[[], object] = lambda: None) -> None:
    """Create what is missing; leave what is there, but bring its validator up to date. Any number may do so at
    once, as the workers of a cluster do that start together.

    Call `adopt` before the collection `orders` gets its first validator. The validator notes that this was done: if it
    is cut off, the next call of `create` calls `adopt` again.

    Where all is there and as it should be no right to create is needed. Raises ServerRefused if one is, and is missing.
    """
    try:
        _create(database, adopt)
    except OperationFailure as error:
        if not is_denied(error):
            raise
        if lacking := missing(database):
            raise _may_not(lacking) from None


def _create(database: Database[Document], adopt: Callable[[], object]) -> None:
    existing = {found["name"]: found.get("options", {}) for found in database.list_collections()}
    for name, validator in definitions.VALIDATORS.items():
        if name == ORDERS and not _options(database, name).get("validator"):
            adopt()
        if name in existing or not _create_collection(database, name, validator):
            options = existing[name] if name in existing else _options(database, name)
            if not is_validated(options, validator):
                _change_validator(database, name, validator)
        for keys, options in definitions.INDEXES.get(name, []):
            database[name].create_index(keys, **options)


def missing(database: Database[Document]) -> list[str]:
    """Return what `create` would make or bring up to date, each in a few words. Reads metadata only."""
    return list(_missing(database))


def _missing(database: Database[Document]) -> Iterator[str]:
    there = {found["name"]: found.get("options", {}) for found in database.list_collections()}
    held = indexes(database)
    for name, validator in definitions.VALIDATORS.items():
        if name not in there:
            yield f"{COLLECTION} {name}"
            continue
        if not is_validated(there[name], validator):
            yield f"{VALIDATOR} of {name}"
        for _, options in definitions.INDEXES.get(name, []):
            if options["name"] not in held[name]:
                yield f"{INDEX} {name}.{options['name']}"


def indexes(database: Database[Document]) -> dict[str, dict[str, Any]]:
    """{collection: {index: its options}}; none of a collection that is not there."""
    return {name: dict(database[name].index_information()) for name in definitions.VALIDATORS}


def _may_not(lacking: Sequence[str]) -> ServerRefused:
    rights = sorted({_RIGHTS[what.split()[0]] for what in lacking})
    return ServerRefused(
        f"missing or out of date: {', '.join(lacking)}; and this user of MongoDB may not see to it, which takes "
        f"{' and '.join(rights)}. Run `recovery init` as a user with the role {OPERATOR}"
    )


def is_validated(options: Document, validator: Document) -> bool:
    """Whether a collection of these options refuses what `validator` does."""
    held = options.get("validationLevel", "strict"), options.get("validationAction", "error")
    same = _in_order(options.get("validator", {})) == _in_order(validator)
    return same and (not validator or held == (definitions.LEVEL, "error"))


def _in_order(validator: Document) -> Document:
    """A validator with its conditions sorted. Their order means nothing, and versions that differ in it must not take
    each other's for out of date."""
    return {**validator, "$nor": sorted(validator.get("$nor", ()), key=repr)}


def _create_collection(database: Database[Document], name: str, validator: Document) -> bool:
    """False if somebody was first: another worker that started with us, or a client, whose insert makes a collection
    that has no validator."""
    try:
        database.create_collection(name, validator=validator, validationLevel=definitions.LEVEL)
    except CollectionInvalid:
        return False
    except OperationFailure as error:
        if error.code != 48:  # NamespaceExists
            raise
        return False
    return True


def _options(database: Database[Document], name: str) -> Document:
    found: Document = next(iter(database.list_collections(filter={"name": name})), {}).get("options", {})
    return found


def _change_validator(database: Database[Document], name: str, validator: Document) -> None:
    """Refused while an index of the collection is built, for instance by another worker that started with us: tried
    again for that alone, since what the caller does about a server that is away is its own affair."""
    from recovery.retry.in_place import by_driver, call  # only who creates collections needs it
    from recovery.retry.own_work import INDEX_BUILD
    from recovery.retry.reasons import SERVER_OVERLOADED
    from recovery.retry.strategies import Stop

    another_error = Stop(lambda _, reason: reason is not SERVER_OVERLOADED)
    call(
        lambda: database.command(
            "collMod", name, validator=validator, validationLevel=definitions.LEVEL, validationAction="error"
        ),
        INDEX_BUILD.request(f"validator of {name}", stop=another_error),
        classified=by_driver,
    )


def different(database: Database[Document]) -> dict[str, str]:
    """{index that is there but not as it should be: the command that drops it}: only then can it be made again.

    An index of somebody else is among them if it has MongoDB remove records after a time.
    """
    found: dict[str, str] = {}
    for name, held in indexes(database).items():
        for keys, options in definitions.INDEXES.get(name, []):
            index = options["name"]
            if index in held and not _is_as(held[index], keys, options):
                found[f"{name}.{index}"] = f"db.{name}.dropIndex({index!r})"
        ours = {options["name"] for _, options in definitions.INDEXES.get(name, [])}
        for index, options in held.items():
            if "expireAfterSeconds" in options and index not in ours:
                found[f"{name}.{index}"] = f"db.{name}.dropIndex({index!r})"
    return found


def _is_as(held: Document, keys: Any, options: Document) -> bool:
    same_keys = [(field, int(order)) for field, order in held["key"]] == [tuple(key) for key in keys]
    expression = options.get("partialFilterExpression")
    same_filter = held.get("partialFilterExpression") == expression
    same_lifetime = held.get("expireAfterSeconds") == options.get("expireAfterSeconds")
    return same_keys and same_filter and same_lifetime and bool(held.get("unique")) == bool(options.get("unique"))
