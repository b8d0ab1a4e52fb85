"""How collections are made: their indexes and validators. `create` is idempotent; `recovery init` and every worker call
it.

All indexes of processes' records are partial but for `_id` and `type`: they hold what is live (or odd), not what
exists. The validators refuse a live record without a deadline, so our own code can't write one. The index
`deadlineMissing` finds those that another program wrote; while all is well it is empty and costs nothing.

Collections are plain, not clustered on `_id`. A clustered one reads a range 1.35 times as fast, but MongoDB 6.0
answers `_id: {$in: [...]}` on it with a scan of the whole collection (100,000 documents examined for 1,000 ids,
where the `_id` index examines 1,000), and every batch of ours is such a query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pymongo.database import Database
from pymongo.errors import CollectionInvalid, OperationFailure

from recovery.errors import ServerRefused
from recovery.records import (
    LIVE_DECISIONS,
    ActorPreferences,
    AuditEntry,
    Census,
    Decision,
    DecisionState,
    Graph,
    Interruption,
    LeftCounts,
    Marker,
    Operation,
    OperationRange,
    OperationResult,
    Order,
    Process,
    ProcessState,
    ProcessTypePreferences,
    QueueStatistics,
    Record,
    SavedSearch,
    ScannerRun,
    Schedule,
    Task,
    Worker,
)
from recovery.records.operation import ACTIVE
from recovery.records.operation_parts import RangeState
from recovery.store.client import Document
from recovery.store.driver_errors import is_denied
from recovery.store.schema import (
    ACTORS,
    AUDIT_LOG,
    BEFORE_CLAIM,
    CENSUS,
    DECISIONS,
    GRAPHS,
    INTERRUPTIONS,
    KEPT_AUDIT,
    KEPT_COUNTS,
    KEPT_MARKERS,
    KEPT_ORDERS,
    KEPT_RESULTS,
    LEFT_COUNTS,
    MARKERS,
    OPERATION_RANGES,
    OPERATION_RESULTS,
    OPERATIONS,
    OPERATOR,
    ORDERS,
    PROCESS_TYPES,
    PROCESSES,
    QUEUES,
    SAVED_SEARCHES,
    SCANNERS,
    SCHEDULES,
    TASKS,
    WORKERS,
)
from recovery.store.wrong_types import wrong_types

INDEX_BUILT_TIMEOUT = 600.0
LOOK_EVERY = 0.1
"""Seconds that a changed validator waits for an index that is being built: for 100 million records, minutes."""

LEVEL = "moderate"
"""MongoDB's level of validation. A record that is damaged already can still be changed: with `strict` a field that
nobody needs would keep a task from being claimed, finished or postponed."""

COLLECTION, VALIDATOR, INDEX = "collection", "validator", "index"
_RIGHTS = {COLLECTION: "createCollection", VALIDATOR: "collMod", INDEX: "createIndex"}
"""MongoDB's rights that it takes to make them."""

_DATE = {"$type": "date"}
_LIVE = [state.value for state in LIVE_DECISIONS]
_TO_BE_TAKEN = [state.value for state in (DecisionState.WAITING, DecisionState.DELAYED, DecisionState.QUEUED)]
_UNSUCCESSFUL = [ProcessState.BROKEN.value, ProcessState.ABORTED.value]

KINDS: dict[str, type[Record]] = {
    PROCESSES: Process,
    TASKS: Task,
    DECISIONS: Decision,
    GRAPHS: Graph,
    INTERRUPTIONS: Interruption,
    MARKERS: Marker,
    WORKERS: Worker,
    ACTORS: ActorPreferences,
    PROCESS_TYPES: ProcessTypePreferences,
    QUEUES: QueueStatistics,
    SCANNERS: ScannerRun,
    CENSUS: Census,
    LEFT_COUNTS: LeftCounts,
    SCHEDULES: Schedule,
    OPERATIONS: Operation,
    OPERATION_RANGES: OperationRange,
    OPERATION_RESULTS: OperationResult,
    ORDERS: Order,
    AUDIT_LOG: AuditEntry,
    SAVED_SEARCHES: SavedSearch,
}
"""{collection: the class of its records}."""

_LIVE_HAS_DEADLINE: dict[str, Document] = {
    PROCESSES: {"$or": [{"state": {"$ne": ProcessState.RUNNING.value}}, {"recoveryTime": _DATE}]},
    DECISIONS: {
        # Without a record of its id an upsert is refused (`finish_and_claim`), since this is not what it would make.
        "actor": {"$ne": None},
        "state": {"$ne": None},
        "$or": [{"state": {"$nin": _LIVE}}, {"recoveryTime": _DATE}],
    },
    # A graph is at rest once it is complete, or once it can't go on since a task of it failed or it was aborted.
    GRAPHS: {"$or": [{"notFinished": {}}, {"failed": {"$ne": {}}}, {"aborted": True}, {"recoveryTime": _DATE}]},
    WORKERS: {"recoveryTime": _DATE},
    # At rest once it has ended, and while an operator has it paused or its own failures have it disabled.
    SCHEDULES: {
        "$or": [
            {"recoveryTime": _DATE},
            {"starting": None, "$or": [{"nextSlot": None}, {"paused": {"$ne": None}}, {"disabled": {"$ne": None}}]},
        ]
    },
    OPERATIONS: {"$or": [{"state": {"$nin": [state.value for state in ACTIVE]}}, {"recoveryTime": _DATE}]},
    OPERATION_RANGES: {"$or": [{"state": {"$ne": RangeState.OPEN.value}}, {"recoveryTime": _DATE}]},
}

# No field of a wrong type. What is in arrays is not looked at: each write would pay for it.
VALIDATORS: dict[str, Document] = {
    name: {"$nor": wrong_types(kind, entries=False), **_LIVE_HAS_DEADLINE.get(name, {})} for name, kind in KINDS.items()
}

_DEADLINE: tuple[Any, Document] = (
    [("recoveryTime", 1)],
    {"name": "deadline", "partialFilterExpression": {"recoveryTime": {"$exists": True}}},
)

INDEXES: dict[str, list[tuple[Any, Document]]] = {
    PROCESSES: [
        _DEADLINE,
        (
            [("type", 1), ("customId", 1)],
            {"name": "customId", "unique": True, "partialFilterExpression": {"customId": {"$exists": True}}},
        ),
        (
            [("state", 1)],
            {
                "name": "deadlineMissing",
                "partialFilterExpression": {"recoveryTime": None, "state": ProcessState.RUNNING.value},
            },
        ),
        # Of what was replaced.
        (
            [("formerCustomId", 1)],
            {"name": "formerCustomId", "partialFilterExpression": {"formerCustomId": {"$exists": True}}},
        ),
        # Of processes without labels it costs nothing.
        (
            [("labels", 1), ("_id", 1)],
            {"name": "labels", "partialFilterExpression": {"labels": {"$exists": True}}},
        ),
        # Few, one hopes; what finished well is not in it.
        (
            [("state", 1), ("_id", 1)],
            {"name": "unsuccessful", "partialFilterExpression": {"state": {"$in": _UNSUCCESSFUL}}},
        ),
        # For searches and lists, whose pages are in order of id. Without them a page of what runs, or of a type that is
        # rare, goes through all that exists: 0.13 s for 200,000 processes. What both cost: 3 % of a process of one
        # task from start to end, within noise, and nothing at all of a requeue; 4 and 1 µs of a process that is
        # inserted and ended by the thousand, 20 % of that; and 20 bytes for each process that exists. The type is at
        # the end of the first, so that what runs is gone through in the index alone.
        (
            [("state", 1), ("_id", 1), ("type", 1)],
            {"name": "running", "partialFilterExpression": {"state": ProcessState.RUNNING.value}},
        ),
        ([("type", 1), ("_id", 1)], {"name": "type"}),
    ],
    DECISIONS: [
        _DEADLINE,
        ([("worker", 1)], {"name": "worker", "partialFilterExpression": {"worker": {"$exists": True}}}),
        # What it costs: nothing that can be told from noise where one task is queued or claimed (0 to 2 % of the
        # write), 15 % where lost messages are queued again, a thousand at once; and since it has what waits for other
        # tasks as well, 10 µs for each task that is made, beside some 2 ms that the whole of it costs. Without it each
        # look at what waits would read all that is live: 2 s for a million, and every worker's metrics ask every few
        # seconds; and what waits for other tasks is not even among that. `state` comes first, since only a filter that
        # the keys answer lets MongoDB leap from actor to actor.
        (
            [("state", 1), ("actor", 1), ("queuedAt", 1)],
            {"name": "pending", "partialFilterExpression": {"state": {"$in": _TO_BE_TAKEN}}},
        ),
        (
            [("state", 1)],
            {
                "name": "deadlineMissing",
                "partialFilterExpression": {"recoveryTime": None, "state": {"$in": _LIVE}},
            },
        ),
        # Of tasks that wait for a newer worker. While there are none it costs nothing.
        (
            [("actor", 1)],
            {
                "name": "refused",
                "partialFilterExpression": {"refused": {"$exists": True}, "state": {"$in": BEFORE_CLAIM}},
            },
        ),
    ],
    GRAPHS: [_DEADLINE],
    # Not partial: the collection holds only what is broken.
    INTERRUPTIONS: [
        ([("type", 1), ("actor", 1), ("kind", 1), ("fingerprint", 1)], {"name": "group"}),
        ([("fingerprint", 1)], {"name": "fingerprint"}),
    ],
    # Those that were cleared are removed by MongoDB.
    MARKERS: [([("clearedAt", 1)], {"name": "cleared", "expireAfterSeconds": KEPT_MARKERS})],
    WORKERS: [_DEADLINE],
    SCHEDULES: [_DEADLINE],
    OPERATIONS: [
        _DEADLINE,
        # Of what schedules ordered: each slot once.
        ([("slot", 1)], {"name": "slot", "unique": True, "partialFilterExpression": {"slot": {"$exists": True}}}),
    ],
    OPERATION_RANGES: [
        (
            [("operation", 1), ("phase", 1), ("priority", -1), ("_id", 1)],
            {"name": "open", "partialFilterExpression": {"recoveryTime": {"$exists": True}}},
        ),
        ([("at", 1)], {"name": "old", "expireAfterSeconds": KEPT_RESULTS}),
    ],
    # What was found on a process, whichever operation found it, and on which processes a rule found something.
    OPERATION_RESULTS: [
        ([("process", 1)], {"name": "process"}),
        ([("rules", 1), ("process", 1)], {"name": "rules"}),
        ([("at", 1)], {"name": "old", "expireAfterSeconds": KEPT_RESULTS}),
    ],
    ORDERS: [([("at", 1)], {"name": "old", "expireAfterSeconds": KEPT_ORDERS})],
    LEFT_COUNTS: [([("at", 1)], {"name": "old", "expireAfterSeconds": KEPT_COUNTS})],
    AUDIT_LOG: [
        ([("target", 1), ("_id", 1)], {"name": "target"}),
        ([("at", 1)], {"name": "old", "expireAfterSeconds": KEPT_AUDIT}),
    ],
}


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
    for name, validator in VALIDATORS.items():
        if name == ORDERS and not _options(database, name).get("validator"):
            adopt()
        if name in existing or not _create_collection(database, name, validator):
            options = existing[name] if name in existing else _options(database, name)
            if not is_validated(options, validator):
                _change_validator(database, name, validator)
        for keys, options in INDEXES.get(name, []):
            database[name].create_index(keys, **options)


def missing(database: Database[Document]) -> list[str]:
    """Return what `create` would make or bring up to date, each in a few words. Reads metadata only."""
    return list(_missing(database))


def _missing(database: Database[Document]) -> Iterator[str]:
    there = {found["name"]: found.get("options", {}) for found in database.list_collections()}
    held = indexes(database)
    for name, validator in VALIDATORS.items():
        if name not in there:
            yield f"{COLLECTION} {name}"
            continue
        if not is_validated(there[name], validator):
            yield f"{VALIDATOR} of {name}"
        for _, options in INDEXES.get(name, []):
            if options["name"] not in held[name]:
                yield f"{INDEX} {name}.{options['name']}"


def indexes(database: Database[Document]) -> dict[str, dict[str, Any]]:
    """{collection: {index: its options}}; none of a collection that is not there."""
    return {name: dict(database[name].index_information()) for name in VALIDATORS}


def _may_not(lacking: Sequence[str]) -> ServerRefused:
    rights = sorted({_RIGHTS[what.split()[0]] for what in lacking})
    return ServerRefused(
        f"missing or out of date: {', '.join(lacking)}; and this user of MongoDB may not see to it, which takes "
        f"{' and '.join(rights)}. Run `recovery init` as a user with the role {OPERATOR}"
    )


def is_validated(options: Document, validator: Document) -> bool:
    """Whether a collection of these options refuses what `validator` does."""
    held = options.get("validationLevel", "strict"), options.get("validationAction", "error")
    return options.get("validator", {}) == validator and (not validator or held == (LEVEL, "error"))


def _create_collection(database: Database[Document], name: str, validator: Document) -> bool:
    """False if somebody was first: another worker that started with us, or a client, whose insert makes a collection
    that has no validator."""
    try:
        database.create_collection(name, validator=validator, validationLevel=LEVEL)
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
    from recovery.retry import BestEffort, ServerCall  # only who creates collections needs it
    from recovery.retry.catalogues.own import by_driver
    from recovery.retry.in_place import call
    from recovery.retry.reasons import SERVER_OVERLOADED
    from recovery.retry.strategies import Stop, Until

    strategy = Until(Stop(lambda _, reason: reason is not SERVER_OVERLOADED), BestEffort(lambda _: LOOK_EVERY))
    call(
        lambda: database.command("collMod", name, validator=validator, validationLevel=LEVEL, validationAction="error"),
        ServerCall(f"validator of {name}", strategy, idempotent=True, seconds=INDEX_BUILT_TIMEOUT),
        classified=by_driver,
    )
