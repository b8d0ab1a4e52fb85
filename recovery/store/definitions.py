"""The definition of each collection: the class of its records, its validator and its indexes. `layout` creates them.

Except for `_id` and `type`, all indexes on the records of processes are partial: they contain only live or exceptional
records, so their size does not depend on how many records exist. The validators refuse a live record without a
deadline, so our own code can't write one. The index `deadlineMissing` finds such records if another program wrote them.
It is empty while all is well.

The collections are not clustered on `_id`. MongoDB 6.0 answers `_id: {$in: [...]}` on a clustered collection by
scanning all of it, and every batch here is such a query.
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
"""MongoDB's level of validation. With `moderate` a record that is already invalid can still be updated. With `strict`
one damaged field would prevent the claim, the finish and the postponement of its task.
"""

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
        # Also refuse a decision without an actor or a state.
        "actor": {"$ne": None},
        "state": {"$ne": None},
        "$or": [{"state": {"$nin": _LIVE}}, {"recoveryTime": _DATE}],
    },
    # A graph is at rest once it is complete, failed or aborted.
    GRAPHS: {"$or": [{"notFinished": {}}, {"failed": {"$ne": {}}}, {"aborted": True}, {"recoveryTime": _DATE}]},
    WORKERS: {"recoveryTime": _DATE},
    # A schedule is at rest once it has ended, and while an operator has paused it or its own failures have disabled it.
    SCHEDULES: {
        "$or": [
            {"recoveryTime": _DATE},
            {"starting": None, "$or": [{"nextSlot": None}, {"paused": {"$ne": None}}, {"disabled": {"$ne": None}}]},
        ]
    },
    OPERATIONS: {"$or": [{"state": {"$nin": [state.value for state in ACTIVE]}}, {"recoveryTime": _DATE}]},
    OPERATION_RANGES: {"$or": [{"state": {"$ne": RangeState.OPEN.value}}, {"recoveryTime": _DATE}]},
}

# Refuse fields of a wrong type. Elements of arrays are not checked, because every write would pay for it.
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
        # The custom ids that processes had before others replaced them.
        (
            [("formerCustomId", 1)],
            {"name": "formerCustomId", "partialFilterExpression": {"formerCustomId": {"$exists": True}}},
        ),
        # Processes without labels are not in this index.
        (
            [("labels", 1), ("_id", 1)],
            {"name": "labels", "partialFilterExpression": {"labels": {"$exists": True}}},
        ),
        # Processes that finished are not in this index.
        (
            [("state", 1), ("_id", 1)],
            {"name": "unsuccessful", "partialFilterExpression": {"state": {"$in": _UNSUCCESSFUL}}},
        ),
        # For searches and lists, whose pages are in the order of `_id`. Without these two indexes a page of running
        # processes, or of a rare type, would scan the whole collection. `type` is the last key of the first index so
        # that running processes can be listed from the index alone.
        (
            [("state", 1), ("_id", 1), ("type", 1)],
            {"name": "running", "partialFilterExpression": {"state": ProcessState.RUNNING.value}},
        ),
        ([("type", 1), ("_id", 1)], {"name": "type"}),
    ],
    DECISIONS: [
        _DEADLINE,
        ([("worker", 1)], {"name": "worker", "partialFilterExpression": {"worker": {"$exists": True}}}),
        # Contains all tasks that are not claimed, including those that wait for other tasks. Without it each query for
        # waiting tasks would read all live decisions, and the metrics of every worker ask every few seconds. `state` is
        # the first key, because MongoDB can skip from actor to actor (a distinct scan) only if the keys of the index
        # answer the filter.
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
        # Tasks that wait for a newer worker. The index is empty while there are none.
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
        # Processes with at least one repaired record.
        (
            [("repaired.rule", 1)],
            {"name": "repaired", "partialFilterExpression": {"repaired.rule": {"$exists": True}}},
        ),
    ],
    # Not partial: the collection contains only broken tasks.
    INTERRUPTIONS: [
        ([("type", 1), ("actor", 1), ("kind", 1), ("fingerprint", 1)], {"name": "group"}),
        ([("fingerprint", 1)], {"name": "fingerprint"}),
    ],
    # MongoDB removes cleared markers after KEPT_MARKERS seconds.
    MARKERS: [([("clearedAt", 1)], {"name": "cleared", "expireAfterSeconds": KEPT_MARKERS})],
    WORKERS: [_DEADLINE],
    SCHEDULES: [_DEADLINE],
    OPERATIONS: [
        _DEADLINE,
        # Unique, so each occurrence of a schedule orders at most one operation.
        ([("slot", 1)], {"name": "slot", "unique": True, "partialFilterExpression": {"slot": {"$exists": True}}}),
    ],
    OPERATION_RANGES: [
        (
            [("operation", 1), ("phase", 1), ("priority", -1), ("_id", 1)],
            {"name": "open", "partialFilterExpression": {"recoveryTime": {"$exists": True}}},
        ),
        ([("at", 1)], {"name": "old", "expireAfterSeconds": KEPT_RESULTS}),
    ],
    # To find the results of all operations for one process, and the processes on which one rule found something.
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
