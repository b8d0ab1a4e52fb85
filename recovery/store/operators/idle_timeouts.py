"""Queries and updates of the idle timeouts that processes and their graphs were started with.

Process and graph are two writes, each a compare-and-set on the timeout that was seen, in one with its deadline: that is
moved nearer and never further off, since who set it may have wanted it near. All are acknowledged by a majority.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pymongo.database import Database

from recovery.records import Process, ProcessState
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import after
from recovery.store.splitting import find_keys, update_each

_DEFAULT = Process(id="", type="", args="").idle_timeout


@translated
class IdleTimeouts:
    """Queries and updates over the collections `processes` and `graphs`."""

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
