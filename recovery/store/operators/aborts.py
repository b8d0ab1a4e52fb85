"""Updates that abort processes: a process ends at once, and its tasks stop.

`Aborts.end` is the commit point. The other updates clear the deadlines of the process's records. The graph stays live
until they are done, so its deadline reveals an interrupted abort (ABORT_CUT_OFF).

All updates are acknowledged by a majority and use index `_id`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pymongo import UpdateMany
from pymongo.database import Database

from recovery.records import (
    UNENDED_PROCESSES,
    Decision,
    DecisionState,
    ErrorInfo,
    Graph,
    Outcome,
    Process,
    ProcessState,
    to_document,
)
from recovery.records.ids import record_id
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import earlier, literal, record_range
from recovery.store.lifecycle.decision_queries import FINISHED
from recovery.store.lifecycle.graph_recovery import IDLE
from recovery.store.lifecycle.tasks import insert_missing

_UNKNOWN_ABORT = ErrorInfo(kind="Aborted", message="by another program")


@translated
class Aborts:
    """Updates of the collections `processes`, `graphs` and `decisions`.

    All processes of a call are in the same epoch.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._processes = committed(database[schema.PROCESSES])
        # Acknowledged by a majority, so that each step is durable before the next one relies on it.
        self._graphs = committed(database[schema.GRAPHS])
        self._decisions = committed(database[schema.DECISIONS])
        self._seen_graphs = current(database[schema.GRAPHS])

    def announce(self, process_ids: Sequence[str]) -> None:
        """Give the graphs of these processes a deadline if they have none and are not aborted.

        A broken process has a graph without a deadline. With the deadline, a scanner finds an abort that is cut off
        after `end` (ABORT_CUT_OFF). If the abort never happens, the scanner finds nothing to do.
        """
        self._graphs.update_many(
            {"_id": {"$in": list(process_ids)}, "recoveryTime": None, "aborted": None},
            [{"$set": {"recoveryTime": IDLE}}],
        )

    def end(
        self,
        process_ids: Sequence[str],
        epoch: int,
        error: ErrorInfo,
        among: Collection[ProcessState] = UNENDED_PROCESSES,
        reopened: Sequence[int | None] | None = None,
    ) -> int:
        """Abort these processes: set the state to aborted and begin the next epoch. This is the commit point.

        A process changes only if it is in `epoch`, in one of the states `among` and, if `reopened` is given, was
        reopened one of these numbers of times. Other processes are left alone, for example those that were aborted
        already.

        Returns:
            The number of processes that this call aborted.
        """
        fields = {
            "state": ProcessState.ABORTED.value,
            "epoch": epoch + 1,
            "endedAt": "$$NOW",
            "error": literal(to_document(error)),
        }
        guard = {"_id": {"$in": list(process_ids)}, "state": {"$in": [state.value for state in among]}, "epoch": epoch}
        changed = self._processes.update_many(
            guard if reopened is None else {**guard, "reopened": {"$in": list(reopened)}},
            [{"$set": fields}, {"$unset": ["recoveryTime", "redo"]}],
        )
        return changed.modified_count

    def close_graphs(self, process_ids: Sequence[str], epoch: int) -> None:
        """Move graphs to the aborted epoch, so that no apply matches them any more. They stay live.

        Only graphs of an earlier epoch, or not yet aborted, change. A missing graph is created as aborted, so that a
        start that is still under way finds it. Reads the existing graphs from the primary (local read concern).
        """
        by_id = {"_id": {"$in": list(process_ids)}}
        existing = {document["_id"] for document in self._seen_graphs.find(by_id, {"_id": True})}
        absent = [
            Graph(id=process_id, epoch=epoch, aborted=True) for process_id in process_ids if process_id not in existing
        ]
        insert_missing(self._graphs, [to_document(graph) for graph in absent])
        created = {"_id": {"$in": [graph.id for graph in absent]}, "aborted": True, "recoveryTime": None}
        self._graphs.update_many(created, [{"$set": {"recoveryTime": IDLE}}])
        closed = {"epoch": epoch, "aborted": True, "touchedAt": "$$NOW", "recoveryTime": IDLE}
        self._graphs.update_many({**by_id, "$or": [earlier(epoch), {"aborted": None}]}, [{"$set": closed}])

    def end_decisions(self, processes: Sequence[Process], epoch: int, pass_key: str) -> None:
        """Finish all unfinished decisions with their process's error, and clear the deadlines of all decisions.

        A missing start decision is created as finished, so that a start that is still under way finds it. Failed
        decisions move to the aborted epoch, where no restart matches them. The updates run in order; each uses one
        range of index `_id` per process.

        Args:
            processes: The aborted processes, with their errors.
            epoch: The aborted epoch.
            pass_key: The pass of the outcomes that are written.
        """
        aborted = {
            process.id: Outcome(pass_key=pass_key, error=process.error or _UNKNOWN_ABORT) for process in processes
        }
        starts = [
            Decision(
                id=record_id(process.id, process.start_task),
                actor=process.type,
                state=DecisionState.FINISHED,
                epoch=epoch,
                outcome=aborted[process.id],
            )
            for process in processes
        ]
        insert_missing(self._decisions, [to_document(decision) for decision in starts])
        clear_claim = {"$unset": ["recoveryTime", "worker", "inBatch"]}
        clear_unfinished = {"$unset": ["recoveryTime", "worker", "inBatch", "fallible"]}
        any_process = {"$or": [record_range(process.id) for process in processes]}
        failed = {"outcome.error": {"$exists": True}, "fallible": None, **earlier(epoch)}
        # Failed decisions first: until they are moved, a restart might queue them.
        updates = [UpdateMany({"$and": [any_process, failed]}, [{"$set": {"epoch": epoch}}])]
        updates += [
            UpdateMany(
                {**record_range(process_id), "state": {"$ne": FINISHED}},
                [{"$set": _ended(outcome) | {"state": FINISHED, "epoch": epoch}}, clear_unfinished],
            )
            for process_id, outcome in aborted.items()
        ]
        finished_live = {"state": FINISHED, "recoveryTime": {"$exists": True}}
        updates.append(UpdateMany({"$and": [any_process, finished_live]}, [clear_claim]))
        self._decisions.bulk_write(updates, ordered=True)

    def clear_graph_deadlines(self, process_ids: Sequence[str]) -> None:
        """Clear the deadlines of the graphs of these processes that are aborted.

        Called once all other records of the processes are at rest.
        """
        closed = {"_id": {"$in": list(process_ids)}, "aborted": True}
        self._graphs.update_many(closed, {"$unset": {"recoveryTime": ""}})


def _ended(outcome: Outcome) -> Document:
    return {"outcome": {"$mergeObjects": [literal(to_document(outcome)), {"finishedAt": "$$NOW"}]}}
