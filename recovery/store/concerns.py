"""How records are read and written, as MongoDB's concerns. Each handle names all of them itself, so that neither the
address nor the cluster's defaults change what is promised.

`committed` is what a majority has: no failover takes it back. What anybody is told was read so, and what has
consequences that no failover undoes (a task is begun, a process ends), and whoever was told waited for such a write. It
may lag behind: read what was just written with `current` only by who wrote it, or after `Store.catch_up`.

`current` is the primary's own word: what a compare-and-set is tried on, what is overdue, what was just written. A
failover may take it back, and with it all that was written after it on the same primary; across a failover nothing may
be concluded from it. What is written so, a rule restores.
"""

from __future__ import annotations

from typing import Any

from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

ACKNOWLEDGED = WriteConcern("majority", j=True)
RESTORABLE = WriteConcern(1)
_LOCAL, _MAJORITY, _LINEARIZABLE = ReadConcern("local"), ReadConcern("majority"), ReadConcern("linearizable")


def overridden(client: MongoClient[Any]) -> list[str]:
    """What the address, or the cluster for all its clients, says of concerns, each as `name=value`: our handles name
    their own. Of the cluster only where we may ask."""
    found: list[str] = []
    if client.read_preference != ReadPreference.PRIMARY:
        found.append(f"readPreference={client.read_preference.mongos_mode}")
    if client.read_concern.level is not None:
        found.append(f"readConcernLevel={client.read_concern.level}")
    found += [f"{name}={value}" for name, value in client.write_concern.document.items()]
    try:
        defaults = client.admin.command("getDefaultRWConcern")
    except OperationFailure:
        return found
    for kind in ("Read", "Write"):
        if defaults.get(f"default{kind}ConcernSource") == "global":
            said = ", ".join(f"{name}: {value}" for name, value in defaults[f"default{kind}Concern"].items())
            found.append(f"the cluster's default{kind}Concern={{{said}}}")
    return found


def named(client: MongoClient[Any], database: str) -> Database[Any]:
    """A database whose handles, and commands such as the making of an index, follow nothing but what is said here: they
    read the primary's word, and write with a majority."""
    return client.get_database(
        database, read_preference=ReadPreference.PRIMARY, read_concern=_LOCAL, write_concern=ACKNOWLEDGED
    )


def committed(collection: Collection[Any]) -> Collection[Any]:
    """Reads what a majority has; a write returns once a majority has it in its journals."""
    return collection.with_options(
        read_preference=ReadPreference.PRIMARY, read_concern=_MAJORITY, write_concern=ACKNOWLEDGED
    )


def current(collection: Collection[Any]) -> Collection[Any]:
    """Reads and writes with the primary's word alone."""
    return collection.with_options(
        read_preference=ReadPreference.PRIMARY, read_concern=_LOCAL, write_concern=RESTORABLE
    )


def certain(collection: Collection[Any]) -> Collection[Any]:
    """Reads one record by its id as it is, acknowledged by a majority after the question: what is not there then does
    not exist. Takes up to the journal's interval, 0.1 s."""
    return committed(collection).with_options(read_concern=_LINEARIZABLE)
