"""Updates of times and epochs of processes that are not over.

`IdleTimeouts` sets idle timeouts for operators. `Corrections` repairs impossible times and wrong epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo.database import Database

from recovery.limits import LONGEST
from recovery.records import UNENDED_PROCESSES, DecisionState, Process, ProcessState
from recovery.records.ids import started_at
from recovery.rules.times import CLOCKS_DIFFER
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import after, date_of, literal, number_of, past_of, record_range
from recovery.store.lifecycle.graph_recovery import IDLE, TOUCHED
from recovery.store.splitting import find_keys, update_each

_DEFAULT = Process(id="", type="", args="").idle_timeout

_AHEAD = after(CLOCKS_DIFFER.total_seconds())
"""The latest time that a clock of ours can have written."""
_RUNNING = {"state": ProcessState.RUNNING.value}
_DELAYED_UNTIL: Document = {
    "$max": [
        date_of("$eta"),
        {"$add": [past_of("$queuedAt"), {"$multiply": [{"$min": [number_of("$delay"), LONGEST]}, 1000]}]},
    ]
}


@translated
class IdleTimeouts:
    """Queries and updates of idle timeouts in the collections `processes` and `graphs`.

    Process and graph are separate writes. Each is a compare-and-set on the timeout that was read, and sets the deadline
    as well. A deadline only moves nearer, because an earlier one may be intended. All writes are acknowledged by a
    majority; reads have read concern majority.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._processes = committed(database[schema.PROCESSES])
        self._graphs = committed(database[schema.GRAPHS])

    def of_graphs(self, process_ids: Iterable[str]) -> dict[str, Any]:
        """Return the stored idle timeout of each existing graph by process id. Index `_id`.

        The value may be None or of another type if another program wrote it.
        """
        documents = find_keys(self._graphs, process_ids, {"idleTimeout": True})
        return {document["_id"]: document.get("idleTimeout") for document in documents}

    def set_processes(self, seen: Process, process_ids: Sequence[str], seconds: float) -> int:
        """Set the idle timeout of these processes. Return how many changed.

        A process changes only if its state, epoch, `reopened` and idle timeout equal those of `seen`. A running process
        gets a deadline at most `seconds` from now.
        """
        unchanged: Document = {"state": seen.state.value, "epoch": seen.epoch, "reopened": seen.reopened}
        fields: Document = {"idleTimeout": seconds}
        if seen.state is ProcessState.RUNNING:
            # `$min` ignores a missing deadline, so the process gets one.
            fields["recoveryTime"] = {"$min": ["$recoveryTime", after(seconds)]}
        unchanged["idleTimeout"] = (
            {"$in": [seen.idle_timeout, None]} if seen.idle_timeout == _DEFAULT else seen.idle_timeout
        )
        return update_each(self._processes, process_ids, unchanged, [{"$set": fields}]).count

    def set_graphs(self, seen: Any, process_ids: Sequence[str], seconds: float) -> int:
        """Set the idle timeout of the graphs of these processes. Return how many changed.

        A graph changes only if its idle timeout is still `seen`. A graph without a deadline gets none.
        """
        at_rest = {"$eq": [{"$type": "$recoveryTime"}, "missing"]}
        deadline = {"$cond": [at_rest, "$$REMOVE", {"$min": ["$recoveryTime", after(seconds)]}]}
        stages = [{"$set": {"idleTimeout": seconds, "recoveryTime": deadline}}]
        return update_each(self._graphs, process_ids, {"idleTimeout": seen}, stages).count


@translated
class Corrections:
    """Updates that correct `processes`, `graphs` and `decisions`. Each matches only while the wrong value is stored.

    Writes are not acknowledged by a majority: a lost correction is found and repaired again.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._processes, self._graphs = current(database[schema.PROCESSES]), current(database[schema.GRAPHS])
        self._decisions = current(database[schema.DECISIONS])
        self._committed = committed(database[schema.PROCESSES])

    def set_process_times(self, process_id: str) -> int:
        """Correct impossible times of a running process and its graph. Return how many of the two changed (0 to 2)."""
        started: Any = literal(started_at(process_id))
        process = {"startedAt": _possible("$startedAt", started), "recoveryTime": _sooner("$$NOW")}
        graph = {"touchedAt": _possible("$touchedAt", "$$NOW"), "recoveryTime": _sooner(IDLE)}
        live = {"_id": process_id, "recoveryTime": {"$exists": True}}
        changed = self._processes.update_one({**live, **_RUNNING}, [{"$set": process}]).modified_count
        return changed + self._graphs.update_one(live, [{"$set": graph}]).modified_count

    def set_task_times(self, ids: Sequence[str], worker_timeouts: Mapping[str, float]) -> int:
        """Correct impossible times of open tasks. Return the number of changes.

        Args:
            ids: Ids of the decisions.
            worker_timeouts: Seconds of the worker_timeout by actor.
        """
        changed = 0
        by_ids: Document = {"_id": {"$in": list(ids)}}
        # Due now as well, because the outcome may never have been applied.
        ended = {"outcome.finishedAt": _possible("$outcome.finishedAt", "$$NOW"), "recoveryTime": "$$NOW"}
        impossible = {"$expr": {"$gt": [date_of("$outcome.finishedAt", literal(datetime.max)), _AHEAD]}}
        finished = {**by_ids, "state": DecisionState.FINISHED.value, "outcome": {"$type": "object"}, **impossible}
        changed += self._decisions.update_many(finished, [{"$set": ended}]).modified_count
        # A retry later than the end of its policy is impossible. Its real time is unknown, so it is due now.
        late_retry = {**by_ids, "state": DecisionState.DELAYED.value, "retry.until": {"$type": "date"}}
        late_retry["$expr"] = {"$gt": ["$eta", "$retry.until"]}
        self._decisions.update_many(late_retry, [{"$set": {"eta": "$$NOW"}}])
        # A refused task is delayed by seconds only.
        refused = {"refused": {"$exists": True}, "retry": None, "$expr": {"$gt": ["$eta", _AHEAD]}}
        delayed = {**by_ids, "state": DecisionState.DELAYED.value}
        self._decisions.update_many({**delayed, **refused}, [{"$set": {"eta": "$$NOW"}}])
        due: dict[DecisionState, Any] = {DecisionState.QUEUED: "$$NOW", DecisionState.DELAYED: _DELAYED_UNTIL}
        for state, moment in due.items():
            changed += self._bring_forward({**by_ids, "state": state.value}, moment)
        for actor, seconds in worker_timeouts.items():
            working = {**by_ids, "state": DecisionState.WORKING.value, "actor": actor}
            changed += self._bring_forward(working, after(seconds))
        return changed

    def _bring_forward(self, guard: Document, moment: Any) -> int:
        live = {**guard, "recoveryTime": {"$exists": True}}
        return self._decisions.update_many(live, [{"$set": {"recoveryTime": _sooner(moment)}}]).modified_count

    def set_epoch(self, process_id: str) -> int:
        """Set the epoch of graph and decisions to that of their process, if it is running or broken.

        Return how many changed.

        A process with a pending redo is skipped. Each write matches only the wrong epoch that was read. Index `_id`.
        """
        # Read the records before the process. An abort changes the process first, so records that it has moved to the
        # next epoch are not taken for wrong.
        in_range = record_range(process_id)
        epochs = self._decisions.distinct("epoch", in_range)
        graph = self._graphs.find_one({"_id": process_id}, {"epoch": True, "aborted": True})
        unended: Document = {"$in": [state.value for state in UNENDED_PROCESSES]}
        # During a redo, records of two epochs are normal.
        unended = {"_id": process_id, "state": unended, "redo": None}
        process = self._committed.find_one(unended, {"epoch": True})
        if process is None:
            return 0
        epoch, changed = process["epoch"], 0
        if graph is not None and graph.get("epoch") != epoch:
            seen = {"_id": process_id, "epoch": graph.get("epoch"), "aborted": graph.get("aborted")}
            stages: list[Document] = [{"$set": {"epoch": epoch, **TOUCHED}}]
            changed += self._graphs.update_one(seen, stages).modified_count
        # None also matches decisions without an epoch.
        wrong_decisions = {**in_range, "epoch": {"$in": [*(wrong for wrong in epochs if wrong != epoch), None]}}
        changed += self._decisions.update_many(wrong_decisions, {"$set": {"epoch": epoch}}).modified_count
        return changed


def _possible(field: str, otherwise: Any) -> Document:
    """Return an expression for a date field, or `otherwise` if its date is impossible."""
    return {"$cond": [{"$lte": [date_of(field, literal(datetime.max)), _AHEAD]}, field, otherwise]}


def _sooner(moment: Any) -> Document:
    """Return an expression that limits an impossible deadline to `moment` and keeps a possible one."""
    return {"$cond": [{"$gt": ["$recoveryTime", _AHEAD]}, {"$min": ["$recoveryTime", moment]}, "$recoveryTime"]}
