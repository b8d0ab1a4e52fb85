"""Every query and update of MongoDB, each named and described once; nobody else writes a filter.

`Store` is the door: one attribute per collection. Updates are compare-and-sets whose filter holds the whole
condition; deadlines are set by the database's clock (`$$NOW`), never a worker's. What was acknowledged to
somebody is written with majority and journal, what a rule can restore with the primary's word alone; what somebody is
told, or what has consequences, is read as a majority has it (`concerns`). Each query and update says which and why.
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
"""Processes of which all records are read at once, if they are small."""
PORTION_TASKS = 20_000
"""And so many tasks, about: their decisions take 40 MB."""
TASK_BYTES = 50
"""What a task takes in its graph, about."""


def of_database(home: str) -> Any:
    """Declare a part of the store that is made of the whole database."""
    return part(f"store.{home}", lambda store: (store._database,))


def of_collection(home: str, collection: str) -> Any:
    """Declare a part of the store that is made of one collection."""
    return part(f"store.{home}", lambda store: (store._database[collection],))


@translated
class Store:
    """The records in one MongoDB database. Connects at first use; not to be carried over a fork."""

    layout: Layout = of_database("layout:Layout")

    # The collections that starting, running and finishing processes reads and writes.
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

    # The collections that operators' commands and repairs read and write.
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

    # The queries that read across collections, for people and for rules.
    exports: Exports = of_database("views.process_exports:Exports")
    imports: Imports = of_database("views.process_imports:Imports")
    pending: Pending = of_database("views.pending:Pending")
    # As the rules have it, which take a queue that was polled so short a time ago for polled.
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
        """With `within`, on connections of its own, each of whose answers comes within so many seconds or not at
        all. `version` returns the version of the application that uses it; None if there is none."""
        opened = client(settings.mongo_uri, within)
        self._database: Database[Document] = concerns.named(opened, settings.database)
        self._clock = DatabaseClock(self._database)
        self._settings, self._version = settings, version

    def clear_graph_deadlines(self, process_ids: Iterable[str], *, overdue: bool = False) -> int:
        """Take the deadline off complete graphs, and off those that failed, of these processes as far as a majority has
        them as ended: an end that is taken back would have nobody look at the graph. `overdue`: see
        `Graphs.clear_deadlines`."""
        over = self.processes.committed_over(process_ids)
        return self.graphs.clear_deadlines(over, overdue=overdue) if over else 0

    def forget_workers(self, worker_ids: Sequence[str]) -> int:
        """Forget workers that are gone and whose claims were seen to, but not what they told of queues; how many were
        there. Cut off, it is done again: their records are the last that goes."""
        self.queues.fold(worker_ids)
        return self.workers.remove(worker_ids)

    def snapshots(self, process_ids: Sequence[str]) -> list[Snapshot]:
        """All records of these processes, as rules look at them, as they are now: for repairs, which compare and
        set."""
        from recovery.store.views import snapshots

        return snapshots.load(self._database, process_ids, concerns.current)

    def catch_up(self, seconds: float) -> None:
        """Wait up to so many seconds until a majority has what the primary has now: what was written a moment ago is
        then read as committed. Raises StoreUnavailable if the majority lags behind."""
        with pymongo.timeout(seconds):
            self.decisions.catch_up()

    def snapshot_pages(
        self, process_ids: Iterable[str], *, committed: bool = False, thorough: Container[str] = ()
    ) -> Iterator[list[Snapshot]]:
        """The same of any number of processes, as many at a time as may be held in memory at once. `committed`: as a
        majority has them, for people. `thorough`: those of which damage is looked for in what no rule reads as well;
        they may be added while this goes on."""
        concern = concerns.committed if committed else concerns.current
        from recovery.store.views import snapshots

        for portion in self.portions(process_ids):
            left = portion
            while left:
                page = snapshots.load(self._database, left, concern, PORTION_TASKS, thorough)
                yield page
                read = {snapshot.process_id for snapshot in page}
                left = [process_id for process_id in left if process_id not in read]

    def portions(self, process_ids: Iterable[str]) -> Iterator[list[str]]:
        """These processes, in portions whose snapshots may be held in memory at once: up to PORTION, fewer where they
        are large. One query for each PORTION, and one more where there are graphs missing."""
        from recovery.store.splitting import batches, portions

        for page in batches(process_ids, PORTION):
            sizes = self.graphs.sizes(page)
            counts = self.decisions.counts([key for key in page if key not in sizes])
            weights = {key: sizes[key] // TASK_BYTES if key in sizes else counts[key] for key in page}
            yield from portions(weights, PORTION_TASKS)

    def is_away(self) -> bool:
        """Whether the driver saw no primary when it looked last, and found a member broken. Asks nobody: who has not
        asked yet knows nothing, and while members elect one they are there."""
        seen = self._database.client.topology_description
        if seen.topology_type_name == "ReplicaSetWithPrimary":  # ten times as fast as what follows
            return False
        return not seen.has_writable_server() and any(
            server.error is not None for server in seen.server_descriptions().values()
        )

    def now(self) -> datetime:
        """The database's time: what deadlines are compared with."""
        return self._clock.now()
