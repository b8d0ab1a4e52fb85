"""Updates of an abort: a process ends at once, and nothing of it runs on.

The first is the commit point; the others bring its records to rest, in an order that leaves its graph live until all
else is done, so that an abort which was cut off is found by the graph's deadline (ABORT_CUT_OFF).
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

_UNTOLD = ErrorInfo(kind="Aborted", message="by another program")


@translated
class Aborts:
    """Updates over the collections `processes`, `graphs` and `decisions`. Processes are of one epoch each time."""

    def __init__(self, database: Database[Document]) -> None:
        self._processes = committed(database[schema.PROCESSES])
        # Each step is durable before the next one says that it is done.
        self._graphs = committed(database[schema.GRAPHS])
        self._decisions = committed(database[schema.DECISIONS])
        self._seen_graphs = current(database[schema.GRAPHS])

    def announce(self, process_ids: Sequence[str]) -> None:
        """Give graphs that are at rest, those of broken processes, a deadline: what is cut off after the next step is
        found by it (ABORT_CUT_OFF). Without an abort a look at them finds nothing."""
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
        """running|broken, those `among` these, and `reopened` so often if that is given, → aborted in the next epoch:
        the commit point. How many; those that ended otherwise, or were aborted already, are left alone."""
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
        """Take graphs to the aborted epoch, so that no apply matches any more; they stay live. One that is not there
        is made, so that a start which is still under way finds it."""
        among = {"_id": {"$in": list(process_ids)}}
        there = {document["_id"] for document in self._seen_graphs.find(among, {"_id": True})}
        absent = [Graph(id=key, epoch=epoch, aborted=True) for key in process_ids if key not in there]
        insert_missing(self._graphs, [to_document(graph) for graph in absent])
        made = {"_id": {"$in": [graph.id for graph in absent]}, "aborted": True, "recoveryTime": None}
        self._graphs.update_many(made, [{"$set": {"recoveryTime": IDLE}}])
        closed = {"epoch": epoch, "aborted": True, "touchedAt": "$$NOW", "recoveryTime": IDLE}
        self._graphs.update_many({**among, "$or": [earlier(epoch), {"aborted": None}]}, [{"$set": closed}])

    def end_decisions(self, processes: Sequence[Process], epoch: int, pass_key: str) -> None:
        """What is not finished → finished with the process's error, at rest; what is finished is put to rest. A start
        decision that is not there is made, finished, so that a start which is still under way finds it.

        What failed goes to the aborted epoch, where no restart looks for it.
        """
        aborted = {p.id: Outcome(pass_key=pass_key, error=p.error or _UNTOLD) for p in processes}
        starts = [
            Decision(
                id=record_id(p.id, p.start_task),
                actor=p.type,
                state=DecisionState.FINISHED,
                epoch=epoch,
                outcome=aborted[p.id],
            )
            for p in processes
        ]
        insert_missing(self._decisions, [to_document(decision) for decision in starts])
        at_rest = {"$unset": ["recoveryTime", "worker", "inBatch"]}
        no_value = {"$unset": ["recoveryTime", "worker", "inBatch", "fallible"]}
        of_all = {"$or": [record_range(process.id) for process in processes]}
        failed = {"outcome.error": {"$exists": True}, "fallible": None, **earlier(epoch)}
        # What failed first: until then a restart might queue it.
        updates = [UpdateMany({"$and": [of_all, failed]}, [{"$set": {"epoch": epoch}}])]
        updates += [
            UpdateMany(
                {**record_range(key), "state": {"$ne": FINISHED}},
                [{"$set": _ended(outcome) | {"state": FINISHED, "epoch": epoch}}, no_value],
            )
            for key, outcome in aborted.items()
        ]
        live = {"state": FINISHED, "recoveryTime": {"$exists": True}}
        updates.append(UpdateMany({"$and": [of_all, live]}, [at_rest]))
        self._decisions.bulk_write(updates, ordered=True)

    def clear_graph_deadlines(self, process_ids: Sequence[str]) -> None:
        """Take the deadlines off graphs of aborted processes, of which nothing is live any more."""
        closed = {"_id": {"$in": list(process_ids)}, "aborted": True}
        self._graphs.update_many(closed, {"$unset": {"recoveryTime": ""}})


def _ended(outcome: Outcome) -> Document:
    return {"outcome": {"$mergeObjects": [literal(to_document(outcome)), {"finishedAt": "$$NOW"}]}}
