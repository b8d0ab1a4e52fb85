"""Updates of the times and epochs of processes that go on: the idle timeouts that operators set (`IdleTimeouts`), and
impossible times and wrong epochs that repairs set right (`Corrections`).
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
"""What is further off than this no clock of ours wrote."""
_RUNNING = {"state": ProcessState.RUNNING.value}
_DELAYED_UNTIL: Document = {
    "$max": [
        date_of("$eta"),
        {"$add": [past_of("$queuedAt"), {"$multiply": [{"$min": [number_of("$delay"), LONGEST]}, 1000]}]},
    ]
}


@translated
class IdleTimeouts:
    """Queries and updates over the collections `processes` and `graphs`.

    Process and graph are two writes, each a compare-and-set on the timeout that was seen, together with its deadline.
    The deadline is moved nearer and never further off, because whoever set it may have wanted it near. All writes are
    acknowledged by a majority.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._processes = committed(database[schema.PROCESSES])
        self._graphs = committed(database[schema.GRAPHS])

    def of_graphs(self, process_ids: Iterable[str]) -> dict[str, Any]:
        """{process: what its graph, as a majority has it, holds as its idle timeout}, of those that have a graph. It
        may be of another type, or None, where another program wrote it."""
        found = find_keys(self._graphs, process_ids, {"idleTimeout": True})
        return {document["_id"]: document.get("idleTimeout") for document in found}

    def set_processes(self, seen: Process, process_ids: Sequence[str], seconds: float) -> int:
        """Set it of these processes, as far as state, epoch, reopened and timeout are those that were `seen`; how many
        changed. One that runs is looked at within so many seconds from now, at the latest."""
        same: Document = {"state": seen.state.value, "epoch": seen.epoch, "reopened": seen.reopened}
        fields: Document = {"idleTimeout": seconds}
        if seen.state is ProcessState.RUNNING:
            # Without a deadline it gets one.
            fields["recoveryTime"] = {"$min": ["$recoveryTime", after(seconds)]}
        same["idleTimeout"] = {"$in": [seen.idle_timeout, None]} if seen.idle_timeout == _DEFAULT else seen.idle_timeout
        return update_each(self._processes, process_ids, same, [{"$set": fields}]).count

    def set_graphs(self, seen: Any, process_ids: Sequence[str], seconds: float) -> int:
        """The same of their graphs, as far as they hold what was `seen`; one at rest stays so. How many changed."""
        at_rest = {"$eq": [{"$type": "$recoveryTime"}, "missing"]}
        deadline = {"$cond": [at_rest, "$$REMOVE", {"$min": ["$recoveryTime", after(seconds)]}]}
        stages = [{"$set": {"idleTimeout": seconds, "recoveryTime": deadline}}]
        return update_each(self._graphs, process_ids, {"idleTimeout": seen}, stages).count


@translated
class Corrections:
    """Updates over `processes`, `graphs` and `decisions`, each only as long as what is wrong stands there."""

    def __init__(self, database: Database[Document]) -> None:
        self._processes, self._graphs = current(database[schema.PROCESSES]), current(database[schema.GRAPHS])
        self._decisions = current(database[schema.DECISIONS])
        self._committed = committed(database[schema.PROCESSES])

    def set_process_times(self, process_id: str) -> int:
        """Set the impossible times of a running process and of its graph; how many of both had some."""
        started: Any = literal(started_at(process_id))
        process = {"startedAt": _possible("$startedAt", started), "recoveryTime": _sooner("$$NOW")}
        graph = {"touchedAt": _possible("$touchedAt", "$$NOW"), "recoveryTime": _sooner(IDLE)}
        live = {"_id": process_id, "recoveryTime": {"$exists": True}}
        changed = self._processes.update_one({**live, **_RUNNING}, [{"$set": process}]).modified_count
        return changed + self._graphs.update_one(live, [{"$set": graph}]).modified_count

    def set_task_times(self, ids: Sequence[str], worker_timeouts: Mapping[str, float]) -> int:
        """The same of tasks that are open, {actor: its worker_timeout}; how many had some."""
        changed = 0
        among: Document = {"_id": {"$in": list(ids)}}
        # And is applied, which it may never have been.
        ended = {"outcome.finishedAt": _possible("$outcome.finishedAt", "$$NOW"), "recoveryTime": "$$NOW"}
        impossible = {"$expr": {"$gt": [date_of("$outcome.finishedAt", literal(datetime.max)), _AHEAD]}}
        finished = {**among, "state": DecisionState.FINISHED.value, "outcome": {"$type": "object"}, **impossible}
        changed += self._decisions.update_many(finished, [{"$set": ended}]).modified_count
        # No retry begins after its last moment: nobody knows when this one was due, so it is now.
        late = {**among, "state": DecisionState.DELAYED.value, "retry.until": {"$type": "date"}}
        late["$expr"] = {"$gt": ["$eta", "$retry.until"]}
        self._decisions.update_many(late, [{"$set": {"eta": "$$NOW"}}])
        # A refused task waits for seconds.
        refused = {"refused": {"$exists": True}, "retry": None, "$expr": {"$gt": ["$eta", _AHEAD]}}
        delayed = {**among, "state": DecisionState.DELAYED.value}
        self._decisions.update_many({**delayed, **refused}, [{"$set": {"eta": "$$NOW"}}])
        due: dict[DecisionState, Any] = {DecisionState.QUEUED: "$$NOW", DecisionState.DELAYED: _DELAYED_UNTIL}
        for state, moment in due.items():
            changed += self._bring_forward({**among, "state": state.value}, moment)
        for actor, seconds in worker_timeouts.items():
            working = {**among, "state": DecisionState.WORKING.value, "actor": actor}
            changed += self._bring_forward(working, after(seconds))
        return changed

    def _bring_forward(self, guard: Document, moment: Any) -> int:
        live = {**guard, "recoveryTime": {"$exists": True}}
        return self._decisions.update_many(live, [{"$set": {"recoveryTime": _sooner(moment)}}]).modified_count

    def set_epoch(self, process_id: str) -> int:
        """Set graph and decisions of a process that goes on to its epoch; how many were of another."""
        # Read before the process: an abort ends that first, so what it has set by then is not taken for wrong.
        of_it = record_range(process_id)
        epochs = self._decisions.distinct("epoch", of_it)
        graph = self._graphs.find_one({"_id": process_id}, {"epoch": True, "aborted": True})
        goes_on: Document = {"$in": [state.value for state in UNENDED_PROCESSES]}
        # While tasks of it are put back its records are of two epochs.
        goes_on = {"_id": process_id, "state": goes_on, "redo": None}
        process = self._committed.find_one(goes_on, {"epoch": True})
        if process is None:
            return 0
        epoch, changed = process["epoch"], 0
        if graph is not None and graph.get("epoch") != epoch:
            seen = {"_id": process_id, "epoch": graph.get("epoch"), "aborted": graph.get("aborted")}
            stages: list[Document] = [{"$set": {"epoch": epoch, **TOUCHED}}]
            changed += self._graphs.update_one(seen, stages).modified_count
        # None: of those that have none.
        others = {**of_it, "epoch": {"$in": [*(one for one in epochs if one != epoch), None]}}
        changed += self._decisions.update_many(others, {"$set": {"epoch": epoch}}).modified_count
        return changed


def _possible(field: str, otherwise: Any) -> Document:
    """Return an expression for a date that is possible, or for `otherwise` in its place."""
    return {"$cond": [{"$lte": [date_of(field, literal(datetime.max)), _AHEAD]}, field, otherwise]}


def _sooner(moment: Any) -> Document:
    """Return an expression for a deadline that is at most this; a possible one stays as it is."""
    return {"$cond": [{"$gt": ["$recoveryTime", _AHEAD]}, {"$min": ["$recoveryTime", moment]}, "$recoveryTime"]}
