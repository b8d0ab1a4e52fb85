"""MongoDB's read and write concerns, by name.

Every handle sets all of its concerns itself, so neither the address nor the cluster's defaults change the guarantees.

`committed` reads what a majority has, and writes with a majority and its journals: no failover undoes what it read or
wrote. It is used for everything that is shown to somebody, and before every step that no failover undoes (a task
begins, a process ends). It may lag behind. To read what was just written, the writer uses `current`, or calls
`Store.catch_up` first.

`current` reads and writes on the primary alone. It is used by compare-and-sets, to find overdue records, and to read
what was just written. A failover may undo such a write, together with all later writes on the same primary, so nothing
may be concluded from it across a failover. A write through `current` must be one that a recovery rule repeats, or whose
loss does no harm.
"""

from __future__ import annotations

from typing import Any

from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

ACKNOWLEDGED = WriteConcern("majority", j=True)
"""Write concern of a write that no failover undoes: a majority, in its journals."""
RESTORABLE = WriteConcern(1)
"""Write concern of a write that a recovery rule can repeat: the primary alone."""
_LOCAL, _MAJORITY, _LINEARIZABLE = ReadConcern("local"), ReadConcern("majority"), ReadConcern("linearizable")


def overridden(client: MongoClient[Any]) -> list[str]:
    """Return the concerns, each as `name=value`, that the address or the cluster's defaults set and that our handles
    override.

    The cluster's defaults are omitted if the user may not read them.
    """
    overrides: list[str] = []
    if client.read_preference != ReadPreference.PRIMARY:
        overrides.append(f"readPreference={client.read_preference.mongos_mode}")
    if client.read_concern.level is not None:
        overrides.append(f"readConcernLevel={client.read_concern.level}")
    overrides += [f"{name}={value}" for name, value in client.write_concern.document.items()]
    try:
        defaults = client.admin.command("getDefaultRWConcern")
    except OperationFailure:
        return overrides
    for kind in ("Read", "Write"):
        if defaults.get(f"default{kind}ConcernSource") == "global":
            concern = ", ".join(f"{name}: {value}" for name, value in defaults[f"default{kind}Concern"].items())
            overrides.append(f"the cluster's default{kind}Concern={{{concern}}}")
    return overrides


def named(client: MongoClient[Any], database: str) -> Database[Any]:
    """Return a database handle with fixed concerns: it reads from the primary and writes with a majority.

    Commands such as `createIndexes` use these concerns too.
    """
    return client.get_database(
        database, read_preference=ReadPreference.PRIMARY, read_concern=_LOCAL, write_concern=ACKNOWLEDGED
    )


def committed(collection: Collection[Any]) -> Collection[Any]:
    """Return a handle that reads what a majority has. Its writes return once a majority has them in its journals."""
    return collection.with_options(
        read_preference=ReadPreference.PRIMARY, read_concern=_MAJORITY, write_concern=ACKNOWLEDGED
    )


def current(collection: Collection[Any]) -> Collection[Any]:
    """Return a handle that reads from the primary, and whose writes the primary alone acknowledges."""
    return collection.with_options(
        read_preference=ReadPreference.PRIMARY, read_concern=_LOCAL, write_concern=RESTORABLE
    )


def certain(collection: Collection[Any]) -> Collection[Any]:
    """Return a handle that reads single records by id, linearizably: a record that it does not find does not exist.

    A majority confirms each read, which takes up to 0.1 s (the interval of the journal).
    """
    return committed(collection).with_options(read_concern=_LINEARIZABLE)
