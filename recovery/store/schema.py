"""The names of the collections, how long records are kept, and filters that an index is made for."""

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
"""The role that may create what is here; see `roles`."""
PROCESS_TYPES = "processTypes"

KEPT_MARKERS = 90 * 86_400
"""Seconds that a cleared marker is kept: who looks into what happened last quarter still finds it, and those of keys
that nobody uses any more don't pile up."""

KEPT_ORDERS = 30 * 86_400
"""Seconds after which an order counts for nothing. It is carried out in seconds, or once the cluster is up again; what
was never carried out, since its process had changed, is not to lie around."""

KEPT_RESULTS = 90 * 86_400
"""Seconds that what an operation found on each process is kept; the operation with its totals stays."""
KEPT_COUNTS = 3600
"""Seconds that a worker may take up what was counted elsewhere; of what is older nobody would know when it was."""
KEPT_AUDIT = 400 * 86_400
"""Seconds that the audit log goes back: a year, and the time until somebody asks about it."""

ALL = (
    *(PROCESSES, TASKS, DECISIONS, GRAPHS, INTERRUPTIONS, MARKERS, WORKERS, ACTORS, PROCESS_TYPES, QUEUES, SCANNERS),
    *(CENSUS, LEFT_COUNTS, SCHEDULES, OPERATIONS, OPERATION_RANGES, OPERATION_RESULTS, ORDERS, AUDIT_LOG),
    *(SAVED_SEARCHES, SAVED_OPERATIONS),
)
OF_PROCESSES = (PROCESSES, GRAPHS, DECISIONS, TASKS)
"""The collections that describe processes."""

BEFORE_CLAIM = [DecisionState.DELAYED.value, DecisionState.QUEUED.value]
WAITS_FOR_NEWER_WORKER: Document = {"refused": {"$exists": True}, "state": {"$in": BEFORE_CLAIM}}
"""A filter of decisions whose tasks wait for a newer worker. Index `refused`."""
