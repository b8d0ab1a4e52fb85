"""What each collection is: the class of its records, its validator and its indexes. `layout` makes them.

All indexes of processes' records are partial but for `_id` and `type`: they hold what is live (or odd), not what
exists. The validators refuse a live record without a deadline, so our own code can't write one. The index
`deadlineMissing` finds those that another program wrote; while all is well it is empty and costs nothing.

Collections are plain, not clustered on `_id`. A clustered one reads a range 1.35 times as fast, but MongoDB 6.0
answers `_id: {$in: [...]}` on it with a scan of the whole collection (100,000 documents examined for 1,000 ids,
where the `_id` index examines 1,000), and every batch of ours is such a query.
"""

from __future__ import annotations

from typing import Any

from recovery.records import (
    LIVE_DECISIONS,
    UNSUCCESSFUL_PROCESSES,
    UNTAKEN_DECISIONS,
    ActorPreferences,
    AuditEntry,
    Census,
    Decision,
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
    SavedOperation,
    SavedSearch,
    ScannerRun,
    Schedule,
    Task,
    Worker,
)
from recovery.records.operation import ACTIVE
from recovery.records.operation_parts import RangeState
from recovery.store.client import Document
from recovery.store.record_reading import wrong_types
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
    ORDERS,
    PROCESS_TYPES,
    PROCESSES,
    QUEUES,
    SAVED_OPERATIONS,
    SAVED_SEARCHES,
    SCANNERS,
    SCHEDULES,
    TASKS,
    WORKERS,
)

LEVEL = "moderate"
"""MongoDB's level of validation. A record that is damaged already can still be changed: with `strict` a field that
nobody needs would keep a task from being claimed, finished or postponed."""

_DATE = {"$type": "date"}
_LIVE = [state.value for state in LIVE_DECISIONS]
_UNTAKEN = [state.value for state in UNTAKEN_DECISIONS]
_UNSUCCESSFUL = [state.value for state in UNSUCCESSFUL_PROCESSES]

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
    SAVED_OPERATIONS: SavedOperation,
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
            {"name": "pending", "partialFilterExpression": {"state": {"$in": _UNTAKEN}}},
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
    GRAPHS: [
        _DEADLINE,
        # Of processes of which something was repaired.
        (
            [("repaired.rule", 1)],
            {"name": "repaired", "partialFilterExpression": {"repaired.rule": {"$exists": True}}},
        ),
    ],
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
