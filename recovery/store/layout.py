"""Creates what the database needs before the first record: collections, validators, indexes, and the roles of users.

`create` is idempotent: `recovery init` and every worker call it. It never drops anything. `different` finds indexes
that must be dropped by hand: those that conflict with ours, and those with which MongoDB would delete our records.
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
"""MongoDB's rights that are needed to create each kind of object."""


@translated
class Layout:
    """The layout of one database."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def create(self) -> None:
        """Create what is missing, and bring validators up to date; see the function `create`.

        Raises:
            ServerRefused: The user lacks a right that is needed.
            IndexConflict: An index exists with other options.
        """
        create(self._database, self._adopt)

    def missing(self) -> list[str]:
        """Return what `create` would create or update, each in a few words. Reads metadata only."""
        return missing(self._database)

    def different(self) -> dict[str, str]:
        """Return {wrong index: the command that drops it}. `create` can make an index again only once it is dropped."""
        return different(self._database)

    def has_graphs(self) -> bool:
        """Return whether the collection `graphs` exists.

        Costs one round trip, for callers that can't afford `create` each time.
        """
        return has_graphs(self._database)

    def create_roles(self) -> None:
        """Create or update the roles of MongoDB's users. Only an administrator of users may do so."""
        roles.create(self._database)

    def _adopt(self) -> None:
        """Call `command_records.adopt`, and log how many orders it wrote."""
        if count := command_records.adopt(self._database):
            log.info("%d processes were marked by an earlier version: wrote the missing orders for their marks", count)

    def drop(self) -> None:
        """Drop the whole database. For the end of a demo, whose data nobody needs."""
        self._database.client.drop_database(self._database.name)


def has_graphs(database: Database[Document]) -> bool:
    """Return whether the collection `graphs` exists.

    Costs one round trip, for callers that can't afford `create` each time.
    """
    return bool(database.list_collection_names(filter={"name": GRAPHS}))


def create(database: Database[Document], adopt: Callable[[], object] = lambda: None) -> None:
    """Create missing collections and indexes, and bring validators up to date.

    Any number of workers may call this at the same time. If nothing is missing or out of date, no right to create is
    needed.

    Args:
        database: The database.
        adopt: Called before the collection `orders` gets its first validator. The validator records that this was done:
            if `create` is interrupted before, its next call calls `adopt` again.

    Raises:
        ServerRefused: Something is missing or out of date, and the user may not create or change it.
    """
    try:
        _create(database, adopt)
    except OperationFailure as error:
        if not is_denied(error):
            raise
        if lacking := missing(database):
            raise _may_not(lacking) from None


def _create(database: Database[Document], adopt: Callable[[], object]) -> None:
    existing = {collection["name"]: collection.get("options", {}) for collection in database.list_collections()}
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
    """Return what `create` would create or update, each in a few words. Reads metadata only."""
    return list(_missing(database))


def _missing(database: Database[Document]) -> Iterator[str]:
    existing = {collection["name"]: collection.get("options", {}) for collection in database.list_collections()}
    existing_indexes = indexes(database)
    for name, validator in definitions.VALIDATORS.items():
        if name not in existing:
            yield f"{COLLECTION} {name}"
            continue
        if not is_validated(existing[name], validator):
            yield f"{VALIDATOR} of {name}"
        for _, options in definitions.INDEXES.get(name, []):
            if options["name"] not in existing_indexes[name]:
                yield f"{INDEX} {name}.{options['name']}"


def indexes(database: Database[Document]) -> dict[str, dict[str, Any]]:
    """Return {collection: {index: its options}}. A collection that does not exist has no indexes."""
    return {name: dict(database[name].index_information()) for name in definitions.VALIDATORS}


def _may_not(lacking: Sequence[str]) -> ServerRefused:
    rights = sorted({_RIGHTS[item.split()[0]] for item in lacking})
    return ServerRefused(
        f"missing or out of date: {', '.join(lacking)}; and this user of MongoDB may not change that, which takes "
        f"{' and '.join(rights)}. Run `recovery init` as a user with the role {OPERATOR}"
    )


def is_validated(options: Document, validator: Document) -> bool:
    """Return whether a collection with these options has exactly this validator, at our level and action."""
    level_and_action = options.get("validationLevel", "strict"), options.get("validationAction", "error")
    is_same = _in_order(options.get("validator", {})) == _in_order(validator)
    return is_same and (not validator or level_and_action == (definitions.LEVEL, "error"))


def _in_order(validator: Document) -> Document:
    """Return a validator with its conditions sorted.

    Their order has no meaning. Without sorting, two versions that order them differently would replace each other's
    validators.
    """
    return {**validator, "$nor": sorted(validator.get("$nor", ()), key=repr)}


def _create_collection(database: Database[Document], name: str, validator: Document) -> bool:
    """Create a collection. Return False if it exists already.

    Another worker may have created it, or a client, whose insert creates a collection without a validator.
    """
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
    """Return the current options of a collection; empty if it does not exist."""
    options: Document = next(iter(database.list_collections(filter={"name": name})), {}).get("options", {})
    return options


def _change_validator(database: Database[Document], name: str, validator: Document) -> None:
    """Set the validator of an existing collection.

    MongoDB refuses this while an index of the collection is being built, for instance by another worker. Only that
    error is retried here; the caller handles a server that is away.
    """
    from recovery.retry.in_place import by_driver, call  # imported only when a validator is changed
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
    """Return {wrong index: the command that drops it}. `create` can make an index again only once it is dropped.

    This includes indexes of other programs that make MongoDB delete records after a time.
    """
    drop_commands: dict[str, str] = {}
    for name, existing in indexes(database).items():
        for keys, options in definitions.INDEXES.get(name, []):
            index = options["name"]
            if index in existing and not _is_as(existing[index], keys, options):
                drop_commands[f"{name}.{index}"] = f"db.{name}.dropIndex({index!r})"
        our_indexes = {options["name"] for _, options in definitions.INDEXES.get(name, [])}
        for index, options in existing.items():
            if "expireAfterSeconds" in options and index not in our_indexes:
                drop_commands[f"{name}.{index}"] = f"db.{name}.dropIndex({index!r})"
    return drop_commands


def _is_as(existing: Document, keys: Any, options: Document) -> bool:
    """Return whether an existing index has these keys and options."""
    same_keys = [(field, int(order)) for field, order in existing["key"]] == [tuple(key) for key in keys]
    expression = options.get("partialFilterExpression")
    same_filter = existing.get("partialFilterExpression") == expression
    same_lifetime = existing.get("expireAfterSeconds") == options.get("expireAfterSeconds")
    return same_keys and same_filter and same_lifetime and bool(existing.get("unique")) == bool(options.get("unique"))
