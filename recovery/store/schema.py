"""Names of the collections, how long records are kept, and filters that have an index."""

from __future__ import annotations

from recovery.records.record import DecisionState
from recovery.store.client import Document

PROCESSES, TASKS, DECISIONS, GRAPHS = "processes", "tasks", "decisions", "graphs"
WORKERS, ACTORS, QUEUES, SCANNERS = "workers", "actors", "queues", "scanners"
INTERRUPTIONS = "interruptions"
SCHEDULES = "schedules"
MARKERS = "markers"
OPERATIONS, OPERATION_RANGES, OPERATION_RESULTS = "operations", "operationRanges", "operationResults"
ORDERS = "orders"
AUDIT_LOG = "auditLog"
SAVED_SEARCHES, SAVED_OPERATIONS = "savedSearches", "savedOperations"
CENSUS, LEFT_COUNTS = "census", "leftCounts"
OPERATOR = "recoveryOperator"
"""The role that may create the collections; see `roles`."""
PROCESS_TYPES = "processTypes"

KEPT_MARKERS = 90 * 86_400
"""Seconds that a cleared marker is kept: long enough to investigate the last quarter. Then MongoDB removes it, so
markers of unused keys do not pile up.
"""

KEPT_ORDERS = 30 * 86_400
"""Seconds after which an order expires. An order is normally carried out within seconds, or once the cluster is up
again. An order whose process changed before is never carried out.
"""

KEPT_RESULTS = 90 * 86_400
"""Seconds that an operation's result for each process is kept. The operation and its totals are kept for good."""
KEPT_COUNTS = 3600
"""Seconds within which a worker may add a command's counts to its metrics. Older counts would appear at the wrong time.
"""
KEPT_AUDIT = 400 * 86_400
"""Seconds that an entry of the audit log is kept: a year and a month, for questions about last year."""

ALL = (
    *(PROCESSES, TASKS, DECISIONS, GRAPHS, INTERRUPTIONS, MARKERS, WORKERS, ACTORS, PROCESS_TYPES, QUEUES, SCANNERS),
    *(CENSUS, LEFT_COUNTS, SCHEDULES, OPERATIONS, OPERATION_RANGES, OPERATION_RESULTS, ORDERS, AUDIT_LOG),
    *(SAVED_SEARCHES, SAVED_OPERATIONS),
)
"""All collections."""
OF_PROCESSES = (PROCESSES, GRAPHS, DECISIONS, TASKS)
"""The collections with the records of processes."""

BEFORE_CLAIM = [DecisionState.DELAYED.value, DecisionState.QUEUED.value]
"""States of decisions that wait for a claim."""
WAITS_FOR_NEWER_WORKER: Document = {"refused": {"$exists": True}, "state": {"$in": BEFORE_CLAIM}}
"""Filter: decisions whose tasks wait for a newer worker. Index `refused`."""
