"""Every query and update of MongoDB. Each is defined and described once, in this package; no other package writes a
filter.

`Store` is the entry point: it has one attribute for each part. Updates are compare-and-sets: their filter repeats the
whole condition that the update was decided on. Deadlines are set by the database's clock (`$$NOW`), never by a worker's
clock.

Writes that somebody is told of are acknowledged by a majority and its journals. Writes that a recovery rule can repeat
are acknowledged by the primary alone. Reads that are shown to somebody, or that lead to an irreversible step, use the
read concern `majority` (see `concerns`). The docstring of each query and update names its concerns where they matter.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pymongo
from pymongo.database import Database

from recovery.lazy_imports import exported, part
from recovery.settings import Settings
from recovery.store import concerns, schema
from recovery.store.client import Document, check_server, client, wait_for_no_monitor
from recovery.store.clock import DatabaseClock
from recovery.store.driver_errors import translated

if TYPE_CHECKING:
    from recovery.rules import Snapshot
    from recovery.store.layout import Layout
    from recovery.store.lifecycle.actors import Actors, ProcessTypes
    from recovery.store.lifecycle.decision_queries import Held
    from recovery.store.lifecycle.decisions import Decisions, Queued, queued
    from recovery.store.lifecycle.graphs import Finished, Graphs, GraphView
    from recovery.store.lifecycle.markers import Markers
    from recovery.store.lifecycle.preferences import CurrentPreferences
    from recovery.store.lifecycle.process_deadlines import MarkerDue
    from recovery.store.lifecycle.processes import Processes
    from recovery.store.lifecycle.queues import Queues
    from recovery.store.lifecycle.requeue_rates import RequeueRates
    from recovery.store.lifecycle.requeues import LOSSES_WITHOUT_DELAY, Counted, Requeues
    from recovery.store.lifecycle.schedules import Schedules
    from recovery.store.lifecycle.task_deadlines import TaskDeadlines
    from recovery.store.lifecycle.task_ends import TaskEnds
    from recovery.store.lifecycle.tasks import Tasks
    from recovery.store.lifecycle.workers import Workers
    from recovery.store.operators.aborts import Aborts
    from recovery.store.operators.command_records import AuditLog, ProcessOrders, SavedOperations, SavedSearches
    from recovery.store.operators.interruption_records import Group, Interruptions, Selection
    from recovery.store.operators.operation_ranges import OperationRanges
    from recovery.store.operators.operation_records import Operations
    from recovery.store.operators.operation_results import OperationResults
    from recovery.store.operators.process_removals import Destruction, Removals
    from recovery.store.operators.process_times import Corrections, IdleTimeouts
    from recovery.store.operators.record_mending import Damaged, Mending
    from recovery.store.operators.redos import Redos
    from recovery.store.operators.restarts import Restarted, RestartUpdates
    from recovery.store.splitting import PORTION_BYTES, batches, portions
    from recovery.store.views.disk_use import Disk
    from recovery.store.views.lifeline_queries import HeartbeatView, Hung
    from recovery.store.views.metric_counts import Censuses, LeftCountRecords
    from recovery.store.views.overview import Overview
    from recovery.store.views.pending import Pending
    from recovery.store.views.process_exports import Exports
    from recovery.store.views.process_imports import Imports
    from recovery.store.views.process_lookup import ProcessDetails, ProcessNames
    from recovery.store.views.ranges import Ranges
    from recovery.store.views.rejected_writes import RejectedWrites
    from recovery.store.views.scanner_queries import Due, Scanners, UnreachableDeadlines
    from recovery.store.views.search import Search
    from recovery.store.views.server_state import MongoServer
    from recovery.store.views.waiting_tasks import ActorQueue, Refusals, Waiting

__all__ = [
    "LOSSES_WITHOUT_DELAY",
    "PORTION",
    "PORTION_BYTES",
    "PORTION_TASKS",
    "TASK_BYTES",
    "ActorQueue",
    "Counted",
    "Finished",
    "GraphView",
    "Group",
    "Held",
    "MarkerDue",
    "Queued",
    "Restarted",
    "Selection",
    "Store",
    "batches",
    "check_server",
    "portions",
    "queued",
    "schema",
    "wait_for_no_monitor",
]


__getattr__ = exported(
    __name__,
    {
        "lifecycle.decision_queries": "Held",
        "lifecycle.decisions": "Queued queued",
        "lifecycle.graphs": "Finished GraphView",
        "lifecycle.process_deadlines": "MarkerDue",
        "lifecycle.requeues": "LOSSES_WITHOUT_DELAY Counted",
        "operators.interruption_records": "Group Selection",
        "operators.restarts": "Restarted",
        "splitting": "PORTION_BYTES batches portions",
        "views.waiting_tasks": "ActorQueue",
    },
)


PORTION = 100
"""Maximum number of processes whose records are read at once."""
PORTION_TASKS = 20_000
"""Approximate maximum number of tasks that are read at once. Their decisions take 40 MB of memory."""
TASK_BYTES = 50
"""Approximate bytes that one task takes in a graph."""


def of_database(home: str) -> Any:
    """Declare a part of the store that is constructed from the whole database."""
    return part(f"store.{home}", lambda store: (store._database,))


def of_collection(home: str, collection: str) -> Any:
    """Declare a part of the store that is constructed from one collection."""
    return part(f"store.{home}", lambda store: (store._database[collection],))


@translated
class Store:
    """All records in one MongoDB database. Connects at first use. Must not be used across a fork."""

    layout: Layout = of_database("layout:Layout")

    # The parts that start, run and finish processes.
    processes: Processes = of_collection("lifecycle.processes:Processes", schema.PROCESSES)
    tasks: Tasks = of_collection("lifecycle.tasks:Tasks", schema.TASKS)
    decisions: Decisions = part(
        "store.lifecycle.decisions:Decisions", lambda store: (store._database[schema.DECISIONS], store._version)
    )
    graphs: Graphs = of_collection("lifecycle.graphs:Graphs", schema.GRAPHS)
    markers: Markers = of_collection("lifecycle.markers:Markers", schema.MARKERS)
    workers: Workers = of_database("lifecycle.workers:Workers")
    queues: Queues = of_database("lifecycle.queues:Queues")
    requeue_rates: RequeueRates = of_collection("lifecycle.requeue_rates:RequeueRates", schema.QUEUES)
    actors: Actors = of_collection("lifecycle.actors:Actors", schema.ACTORS)
    process_types: ProcessTypes = of_collection("lifecycle.actors:ProcessTypes", schema.PROCESS_TYPES)
    preferences: CurrentPreferences = part(
        "store.lifecycle.preferences:CurrentPreferences", lambda store: (store.actors, store.process_types)
    )
    requeues: Requeues = part(
        "store.lifecycle.requeues:Requeues",
        lambda store: (
            store._database[schema.DECISIONS],
            store._clock.at_least,
            store._settings.message_timeout,
            store.preferences.task_timeouts,
        ),
    )
    task_deadlines: TaskDeadlines = part(
        "store.lifecycle.task_deadlines:TaskDeadlines",
        lambda store: (
            store._database[schema.DECISIONS],
            store._settings.message_timeout,
            store.preferences.task_timeouts,
        ),
    )
    task_ends: TaskEnds = of_collection("lifecycle.task_ends:TaskEnds", schema.DECISIONS)
    schedules: Schedules = of_collection("lifecycle.schedules:Schedules", schema.SCHEDULES)

    # The parts for operators' commands and for repairs.
    interruptions: Interruptions = of_collection("operators.interruption_records:Interruptions", schema.INTERRUPTIONS)
    aborts: Aborts = of_database("operators.aborts:Aborts")
    restarts: RestartUpdates = part(
        "store.operators.restarts:RestartUpdates",
        lambda store: (store._database, store._settings.message_timeout, store.preferences.task_timeouts),
    )
    redos: Redos = of_database("operators.redos:Redos")
    orders: ProcessOrders = of_collection("operators.command_records:ProcessOrders", schema.ORDERS)
    removals: Removals = of_database("operators.process_removals:Removals")
    idle_timeouts: IdleTimeouts = of_database("operators.process_times:IdleTimeouts")
    mending: Mending = of_database("operators.record_mending:Mending")
    corrections: Corrections = of_database("operators.process_times:Corrections")
    left_counts: LeftCountRecords = of_collection("views.metric_counts:LeftCountRecords", schema.LEFT_COUNTS)
    operations: Operations = of_collection("operators.operation_records:Operations", schema.OPERATIONS)
    operation_ranges: OperationRanges = of_collection(
        "operators.operation_ranges:OperationRanges", schema.OPERATION_RANGES
    )
    operation_results: OperationResults = of_collection(
        "operators.operation_results:OperationResults", schema.OPERATION_RESULTS
    )
    saved_searches: SavedSearches = of_collection("operators.command_records:SavedSearches", schema.SAVED_SEARCHES)
    saved_operations: SavedOperations = of_collection(
        "operators.command_records:SavedOperations", schema.SAVED_OPERATIONS
    )
    audit_log: AuditLog = of_collection("operators.command_records:AuditLog", schema.AUDIT_LOG)
    destruction: Destruction = of_database("operators.process_removals:Destruction")

    # Queries across several collections, for people and for rules.
    exports: Exports = of_database("views.process_exports:Exports")
    imports: Imports = of_database("views.process_imports:Imports")
    pending: Pending = of_database("views.pending:Pending")
    # The rules use the same `polled_within`, so both agree on which queues count as polled.
    waiting: Waiting = part(
        "store.views.waiting_tasks:Waiting",
        lambda store: (store._database, store.pending, store.queues, store._settings.polled_within),
    )
    refusals: Refusals = of_database("views.waiting_tasks:Refusals")
    hung: Hung = part(
        "store.views.lifeline_queries:Hung", lambda store: (store._database, lambda: store.decisions.catch_up())
    )
    rejected_writes: RejectedWrites = of_database("views.rejected_writes:RejectedWrites")
    unreachable_deadlines: UnreachableDeadlines = of_database("views.scanner_queries:UnreachableDeadlines")
    damaged: Damaged = of_database("operators.record_mending:Damaged")
    ranges: Ranges = of_database("views.ranges:Ranges")
    overview: Overview = of_database("views.overview:Overview")
    censuses: Censuses = of_database("views.metric_counts:Censuses")
    disk: Disk = of_database("views.disk_use:Disk")
    process_details: ProcessDetails = of_database("views.process_lookup:ProcessDetails")
    process_names: ProcessNames = of_database("views.process_lookup:ProcessNames")
    server: MongoServer = part(
        "store.views.server_state:MongoServer", lambda store: (store._database, store._settings.mongo_uri)
    )
    search: Search = of_database("views.search:Search")
    heartbeat_view: HeartbeatView = of_database("views.lifeline_queries:HeartbeatView")
    scanners: Scanners = of_collection("views.scanner_queries:Scanners", schema.SCANNERS)
    due: Due = of_database("views.scanner_queries:Due")

    def __init__(
        self, settings: Settings, within: float | None = None, version: Callable[[], str | None] = lambda: None
    ) -> None:
        """Open the store; the connection is made at first use.

        Args:
            settings: The address and name of the database, and the timeouts of messages and polls.
            within: Seconds in which every connection and every answer must come. If given, the store has connections of
                its own. By default it uses this process's shared client and its timeouts; see `client`.
            version: Returns the version of the application that uses the store, or None if it has none. Claims record
                this version.
        """
        opened = client(settings.mongo_uri, within)
        self._database: Database[Document] = concerns.named(opened, settings.database)
        self._clock = DatabaseClock(self._database)
        self._settings, self._version = settings, version

    def clear_graph_deadlines(self, process_ids: Iterable[str], *, overdue: bool = False) -> int:
        """Clear the deadlines of complete and failed graphs whose processes have ended. Return how many were cleared.

        Only processes that a majority has as ended are considered. Otherwise a failover could undo the end of a
        process, and nobody would look at its graph again.

        Args:
            process_ids: Processes whose graphs are considered.
            overdue: Clear only deadlines that are past; see `Graphs.clear_deadlines`.
        """
        ended_ids = self.processes.committed_over(process_ids)
        return self.graphs.clear_deadlines(ended_ids, overdue=overdue) if ended_ids else 0

    def forget_workers(self, worker_ids: Sequence[str]) -> int:
        """Remove the records of dead workers whose claims were requeued. Return how many records existed.

        What they reported about queues is first added to the queues' own records. May be run again if it was
        interrupted, because the workers' records are removed last.
        """
        self.queues.fold(worker_ids)
        return self.workers.remove(worker_ids)

    def snapshots(self, process_ids: Sequence[str]) -> list[Snapshot]:
        """Return all records of these processes as the primary has them now, in the form that rules read.

        For repairs, whose writes are compare-and-sets.
        """
        from recovery.store.views import snapshots

        return snapshots.load(self._database, process_ids, concerns.current)

    def catch_up(self, seconds: float) -> None:
        """Wait until a majority has everything that the primary has now, so that `committed` reads see recent writes.

        Args:
            seconds: Maximum time to wait.

        Raises:
            StoreTimeout: The majority still lags behind after `seconds`.
        """
        with pymongo.timeout(seconds):
            self.decisions.catch_up()

    def snapshot_pages(
        self, process_ids: Iterable[str], *, committed: bool = False, thorough: Container[str] = ()
    ) -> Iterator[list[Snapshot]]:
        """Yield the snapshots of any number of processes, in pages that fit into memory.

        Args:
            process_ids: The processes.
            committed: Read what a majority has, for people, instead of what the primary has.
            thorough: Processes whose records are also checked for damage in fields that no rule reads. The caller may
                add ids while it iterates.
        """
        concern = concerns.committed if committed else concerns.current
        from recovery.store.views import snapshots

        for portion in self.portions(process_ids):
            remaining = portion
            while remaining:
                page = snapshots.load(self._database, remaining, concern, PORTION_TASKS, thorough)
                yield page
                read = {snapshot.process_id for snapshot in page}
                remaining = [process_id for process_id in remaining if process_id not in read]

    def portions(self, process_ids: Iterable[str]) -> Iterator[list[str]]:
        """Yield these process ids in portions whose snapshots fit into memory: at most PORTION, fewer if processes are
        large.

        Costs one query for each PORTION, and a second one if some processes have no graph.
        """
        from recovery.store.splitting import batches, portions

        for batch in batches(process_ids, PORTION):
            sizes = self.graphs.sizes(batch)
            counts = self.decisions.counts([process_id for process_id in batch if process_id not in sizes])
            weights = {
                process_id: sizes[process_id] // TASK_BYTES if process_id in sizes else counts[process_id]
                for process_id in batch
            }
            yield from portions(weights, PORTION_TASKS)

    def is_away(self) -> bool:
        """Return whether the driver last saw no primary and had an error with at least one member.

        Asks no server. False as long as this process has not connected yet, and during an election between reachable
        members.
        """
        topology = self._database.client.topology_description
        if topology.topology_type_name == "ReplicaSetWithPrimary":  # much faster than the check below
            return False
        return not topology.has_writable_server() and any(
            server.error is not None for server in topology.server_descriptions().values()
        )

    def now(self) -> datetime:
        """Return the database's time, which deadlines are compared with."""
        return self._clock.now()
