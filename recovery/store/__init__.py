"""Every query and update of MongoDB, each named and described once; nobody else writes a filter.

`Store` is the door: one attribute per collection. Updates are compare-and-sets whose filter holds the whole
condition; deadlines are set by the database's clock (`$$NOW`), never a worker's. What was acknowledged to
somebody is written with majority and journal, what a rule can restore with the primary's word alone; what somebody is
told, or what has consequences, is read as a majority has it (`concerns`). Each query and update says which and why.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import datetime

import pymongo
from pymongo.database import Database

from recovery.rules import Snapshot
from recovery.settings import Settings
from recovery.store import schema
from recovery.store.batches import PORTION_BYTES, batches, portions
from recovery.store.client import Document, check_server, client, wait_for_no_monitor
from recovery.store.clock import DatabaseClock
from recovery.store.concerns import committed as as_committed
from recovery.store.concerns import current, named
from recovery.store.driver_errors import translated
from recovery.store.layout import Layout
from recovery.store.lifecycle.actors import Actors, KeptSettings, ProcessTypes
from recovery.store.lifecycle.decision_batches import DecisionBatches
from recovery.store.lifecycle.decision_queries import Held
from recovery.store.lifecycle.decisions import Decisions, Queued, queued
from recovery.store.lifecycle.graph_batches import GraphBatches
from recovery.store.lifecycle.graphs import Finished, Graphs, GraphView
from recovery.store.lifecycle.markers import Markers
from recovery.store.lifecycle.preferences import CurrentPreferences
from recovery.store.lifecycle.process_batches import ProcessBatches
from recovery.store.lifecycle.process_updates import MarkerDue
from recovery.store.lifecycle.processes import Processes, Standing
from recovery.store.lifecycle.queues import Queues
from recovery.store.lifecycle.requeue_alike import LOSSES_WITHOUT_DELAY
from recovery.store.lifecycle.requeues import LONGEST_WAIT, Requeues
from recovery.store.lifecycle.schedules import Schedules
from recovery.store.lifecycle.tasks import Tasks
from recovery.store.lifecycle.workers import Workers
from recovery.store.operations.aborts import Aborts
from recovery.store.operations.audit_log import AuditLog
from recovery.store.operations.destruction import Destruction
from recovery.store.operations.idle_timeouts import IdleTimeouts
from recovery.store.operations.interruptions import Group, Interruptions, Selection
from recovery.store.operations.left_counts import LeftCountRecords
from recovery.store.operations.mending import Mending
from recovery.store.operations.operation_ranges import OperationRanges
from recovery.store.operations.operation_records import Operations
from recovery.store.operations.operation_results import OperationResults
from recovery.store.operations.orders import Orders
from recovery.store.operations.redos import Redos
from recovery.store.operations.removals import Removals
from recovery.store.operations.restarts import Restarted, Restarts
from recovery.store.operations.saved_searches import SavedSearches
from recovery.store.operations.setting import Setting
from recovery.store.views import snapshots
from recovery.store.views.calls import Calls
from recovery.store.views.census import Censuses
from recovery.store.views.condition import Server
from recovery.store.views.custom_ids import CustomIds
from recovery.store.views.damaged import Damaged
from recovery.store.views.disk import Disk
from recovery.store.views.due import Due
from recovery.store.views.exports import Exports
from recovery.store.views.hung import Hung
from recovery.store.views.imports import Imports
from recovery.store.views.labels import Labels
from recovery.store.views.members import Members
from recovery.store.views.overview import Overview
from recovery.store.views.pending import Pending, ToCome
from recovery.store.views.ranges import Ranges
from recovery.store.views.refused import Refusals
from recovery.store.views.scanners import Scanners
from recovery.store.views.search import Search
from recovery.store.views.unreachable_deadlines import UnreachableDeadlines
from recovery.store.views.waiting import ActorQueue, Waiting

__all__ = [
    "LONGEST_WAIT",
    "LOSSES_WITHOUT_DELAY",
    "PORTION",
    "PORTION_BYTES",
    "PORTION_TASKS",
    "TASK_BYTES",
    "ActorQueue",
    "Finished",
    "GraphView",
    "Group",
    "Held",
    "KeptSettings",
    "MarkerDue",
    "Queued",
    "Restarted",
    "Selection",
    "Standing",
    "Store",
    "ToCome",
    "batches",
    "check_server",
    "portions",
    "queued",
    "schema",
    "wait_for_no_monitor",
]


PORTION = 100
"""Processes of which all records are read at once, if they are small."""
PORTION_TASKS = 20_000
"""And so many tasks, about: their decisions take 40 MB."""
TASK_BYTES = 50
"""What a task takes in its graph, about."""


@translated
class Store:
    """The records in one MongoDB database. Connects at first use; not to be carried over a fork."""

    def __init__(
        self, settings: Settings, within: float | None = None, version: Callable[[], str | None] = lambda: None
    ) -> None:
        """With `within`, on connections of its own, each of whose answers comes within so many seconds or not at
        all. `version` returns the version of the application that uses it; None if there is none."""
        opened = client(settings.mongo_uri, within)
        self._database: Database[Document] = named(opened, settings.database)
        self._clock = DatabaseClock(self._database)
        self.layout = Layout(self._database)
        self._open_lifecycle(settings, version)
        self._open_operations(settings)
        self._open_views(settings)

    def _open_lifecycle(self, settings: Settings, version: Callable[[], str | None]) -> None:
        """Open the collections that starting, running and finishing processes reads and writes."""
        self.processes = Processes(self._database[schema.PROCESSES])
        self.process_batches = ProcessBatches(self._database[schema.PROCESSES])
        self.tasks = Tasks(self._database[schema.TASKS])
        self.decisions = Decisions(self._database[schema.DECISIONS], version)
        self.decision_batches = DecisionBatches(self._database[schema.DECISIONS], version)
        self.graphs = Graphs(self._database[schema.GRAPHS])
        self.graph_batches = GraphBatches(self._database[schema.GRAPHS])
        self.markers = Markers(self._database[schema.MARKERS])
        self.workers = Workers(self._database[schema.WORKERS])
        self.queues = Queues(self._database)
        self.actors = Actors(self._database[schema.ACTORS])
        self.process_types = ProcessTypes(self._database[schema.PROCESS_TYPES])
        self.preferences = CurrentPreferences(self.actors, self.process_types)
        self.requeues = Requeues(
            self._database[schema.DECISIONS],
            self._clock.at_least,
            settings.message_timeout,
            self.preferences.task_timeouts,
        )
        self.schedules = Schedules(self._database[schema.SCHEDULES])

    def _open_operations(self, settings: Settings) -> None:
        """Open the collections that operators' commands and repairs read and write."""
        self.interruptions = Interruptions(self._database[schema.INTERRUPTIONS])
        self.aborts = Aborts(self._database)
        self.restarts = Restarts(self._database, settings.message_timeout, self.preferences.task_timeouts)
        self.redos = Redos(self._database)
        self.orders = Orders(self._database[schema.ORDERS])
        self.removals = Removals(self._database)
        self.idle_timeouts = IdleTimeouts(self._database)
        self.mending = Mending(self._database)
        self.setting = Setting(self._database)
        self.left_counts = LeftCountRecords(self._database[schema.LEFT_COUNTS])
        self.operations = Operations(self._database[schema.OPERATIONS])
        self.operation_ranges = OperationRanges(self._database[schema.OPERATION_RANGES])
        self.operation_results = OperationResults(self._database[schema.OPERATION_RESULTS])
        self.saved_searches = SavedSearches(self._database[schema.SAVED_SEARCHES])
        self.audit_log = AuditLog(self._database[schema.AUDIT_LOG])
        self.destruction = Destruction(self._database)

    def _open_views(self, settings: Settings) -> None:
        """Open the queries that read across collections, for people and for rules."""
        self.exports = Exports(self._database)
        self.imports = Imports(self._database)
        self.pending = Pending(self._database)
        # As the rules have it, which take a queue that was polled so short a time ago for polled.
        self.waiting = Waiting(self._database, self.pending, self.queues, settings.polled_within)
        self.refusals = Refusals(self._database)
        self.hung = Hung(self._database, lambda: self.decisions.catch_up())
        self.unreachable_deadlines = UnreachableDeadlines(self._database)
        self.damaged = Damaged(self._database)
        self.ranges = Ranges(self._database)
        self.overview = Overview(self._database)
        self.censuses = Censuses(self._database)
        self.disk = Disk(self._database)
        self.calls = Calls(self._database)
        self.custom_ids = CustomIds(self._database)
        self.server = Server(self._database, settings.mongo_uri)
        self.search = Search(self._database)
        self.labels = Labels(self._database)
        self.members = Members(self._database)
        self.scanners = Scanners(self._database[schema.SCANNERS])
        self.due = Due(self._database)

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
        return snapshots.load(self._database, process_ids, current)

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
        concern = as_committed if committed else current
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
        for page in batches(process_ids, PORTION):
            sizes = self.graphs.sizes(page)
            counts = self.decisions.counts([key for key in page if key not in sizes])
            weights = {key: sizes[key] // TASK_BYTES if key in sizes else counts[key] for key in page}
            yield from portions(weights, PORTION_TASKS)

    def now(self) -> datetime:
        """The database's time: what deadlines are compared with."""
        return self._clock.now()
