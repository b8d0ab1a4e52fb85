"""Updates that redo tasks of a process in its next epoch (`engine.end.redo`).

`Redos.begin` is the commit point. Each other update names the new epoch and changes only records of earlier epochs.
Therefore several workers may run them at the same time and repeat them. Writes are acknowledged by a majority, so each
step is durable before the next one relies on it. All use index `_id`: the records of a process are one range of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pymongo.database import Database

from recovery.errors import DamagedRecord
from recovery.records import (
    Decision,
    DecisionState,
    Graph,
    Life,
    Process,
    ProcessState,
    Record,
    Task,
    Until,
    forgotten,
    reset,
    to_document,
)
from recovery.records.ids import record_id, split_record_id
from recovery.rules import Link
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import after, earlier, literal, record_range, record_ranges
from recovery.store.lifecycle.tasks import insert_missing
from recovery.store.operators.restarts import with_life
from recovery.store.record_reading import PROCESS_FIELDS, process_of

BATCH = 1000
FINISHED = DecisionState.FINISHED.value

_LINKS = {"children._id": True, "children.deps": True, "outcome.waits": True}
_PUT_BACK = [name for name in forgotten(Until.NEXT_EPOCH) if name != "children"]
"""Decision fields that `put_back` unsets. `children` stays, because every worker that resumes the redo needs it."""


@translated
class Redos:
    """Updates of the collections `processes`, `decisions`, `tasks` and `graphs`."""

    def __init__(self, database: Database[Document]) -> None:
        self._processes = committed(database[schema.PROCESSES])
        self._decisions = committed(database[schema.DECISIONS])
        self._current = current(database[schema.DECISIONS])
        self._tasks = committed(database[schema.TASKS])
        self._graphs = committed(database[schema.GRAPHS])

    def begin(self, seen: Process, life: Life, tasks: Sequence[str], key: str, within: float) -> bool:
        """Move a process to the next epoch, running, with a redo by the order with this key. This is the commit point.

        The process changes only if state, epoch, `reopened`, redo, removal mark and order are as in `seen`, and no
        other process replaced it.

        Args:
            seen: The process as it was read: finished, broken or running.
            life: The entry for the ended epoch in the process's history.
            tasks: Names of the tasks to redo.
            key: Key of the order.
            within: Seconds until a scanner looks at an interrupted redo.

        Returns:
            False if the process has changed.
        """
        guard = {
            "_id": seen.id,
            "state": seen.state.value,
            "epoch": seen.epoch,
            "reopened": seen.reopened,
            "redo": list(seen.redo) or None,
            "replacedBy": None,
            "removing": seen.removing,
            "order": seen.order,
        }
        ended_life: Document = {"$mergeObjects": [literal(to_document(life)), {"endedAt": "$$NOW"}]}
        fields = {
            "state": ProcessState.RUNNING.value,
            "epoch": seen.epoch + 1,
            "reopened": seen.times_reopened + 1,
            "redo": literal(list(tasks)),
            "order": literal(key),
            "lives": with_life(ended_life),
            "restartedAt": "$$NOW",
            "recoveryTime": after(within),
        }
        unset_fields = ["error", "result", "endedAt", "timedOutAt", "markerDue", "removing"]
        return self._processes.update_one(guard, [{"$set": fields}, {"$unset": unset_fields}]).modified_count == 1

    def order(self, seen: Process, key: str) -> bool:
        """Let the order with this key carry out a redo of a running process. Return False if the process has changed.

        Compares state, epoch, redo and order with `seen`.
        """
        guard = {
            "_id": seen.id,
            "state": ProcessState.RUNNING.value,
            "epoch": seen.epoch,
            "redo": list(seen.redo),
            "order": seen.order,
        }
        return self._processes.update_one(guard, {"$set": {"order": key}}).modified_count == 1

    def pending(self, process_id: str) -> Process | None:
        """Return a running process that names an order, without arguments and result; None otherwise.

        If the order exists, the process's tasks have to be redone. Read concern majority.
        """
        guard = {"_id": process_id, "state": ProcessState.RUNNING.value, "order": {"$exists": True}}
        document = self._processes.find_one(guard, PROCESS_FIELDS)
        return process_of(document) if document else None

    def epochs(self, process_id: str) -> list[int]:
        """Return the epochs of a process's decisions, without values that are not integers."""
        return [
            int(epoch)
            for epoch in self._decisions.distinct("epoch", record_range(process_id))
            if isinstance(epoch, int)
        ]

    def set_back(self, process_id: str, odd: Sequence[int], epoch: int) -> None:
        """Move decisions of impossible epochs, written by another program, to the epoch before `epoch`."""
        if odd:
            decisions = {**record_range(process_id), "epoch": {"$in": list(odd)}}
            self._decisions.update_many(decisions, {"$set": {"epoch": epoch - 1}})

    def links(self, process_ids: Sequence[str]) -> dict[str, dict[str, Link]]:
        """Return {process id: {task: its links}}, without large fields. Read concern majority.

        The links are those of the Task record. If that is missing, they come from the decision that scheduled the task.

        Raises:
            DamagedRecord: The links in a record can't be read.
        """
        links: dict[str, dict[str, Link]] = {process_id: {} for process_id in process_ids}
        waits: dict[str, dict[str, tuple[str, ...]]] = {process_id: {} for process_id in process_ids}
        ranges: Document = record_ranges(process_ids)
        for document in self._decisions.find(ranges, _LINKS).hint("_id_"):
            process_id, task = split_record_id(document["_id"])
            with _readable(document, Decision):
                waits[process_id][task] = tuple((document.get("outcome") or {}).get("waits", ()))
                for child in document.get("children", ()):
                    links[process_id][child["_id"]] = Link(task, tuple(child.get("deps", ())))
        for document in self._tasks.find(ranges, {"parent": True, "deps": True}).hint("_id_"):
            process_id, task = split_record_id(document["_id"])
            with _readable(document, Task):
                links[process_id][task] = Link(document.get("parent"), tuple(document.get("deps", ())))
        no_links = Link()
        return {
            process_id: {
                task: replace(task_links.get(task, no_links), waits=waits[process_id].get(task, ()))
                for task in task_links | waits[process_id]
            }
            for process_id, task_links in links.items()
        }

    def put_back(self, process_id: str, epoch: int, tasks: Collection[str]) -> int:
        """Set the decisions of these tasks to waiting in `epoch`, whatever their state. Return how many changed.

        Only decisions of an earlier epoch change. `children` stays for other workers that resume the redo. The eta of a
        retry or a refusal is removed; a scheduled eta stays.
        """
        fields = {"state": DecisionState.WAITING.value, "epoch": epoch, **reset(Until.NEXT_EPOCH)}
        as_scheduled = {"$and": [{"$eq": [{"$type": f"${name}"}, "missing"]} for name in ("retry", "refused")]}
        eta = {"eta": {"$cond": [as_scheduled, "$eta", "$$REMOVE"]}}
        stages: list[Document] = [{"$set": eta}, {"$set": fields}, {"$unset": _PUT_BACK}]
        return self._each(process_id, epoch, tasks, stages)

    def drop(self, process_id: str, epoch: int, tasks: Sequence[str]) -> int:
        """Remove the decisions of these tasks that are of an earlier epoch. Return how many were removed."""
        return sum(
            self._decisions.delete_many({"_id": {"$in": ids}, **earlier(epoch)}).deleted_count
            for ids in _pages(process_id, tasks)
        )

    def discard(self, epoch: int | None, ended: Decision) -> None:
        """Remove the tasks that a stale decision has just scheduled, because its process is in a later epoch or gone.

        Reads the primary, because these tasks were just written and no majority may have them yet. If the decision was
        kept for the current epoch, its tasks of that epoch are kept too: they were scheduled again or are running.
        Otherwise none of its tasks belongs to the current epoch, even if they were moved to it. Only waiting decisions
        are removed.

        Args:
            epoch: The current epoch of the process; None if the process is gone.
            ended: The stale decision.
        """
        if epoch is None:
            epoch = ended.epoch + 1
        unchanged = {"_id": ended.id, "outcome.pass": ended.outcome.pass_key if ended.outcome is not None else None}
        is_kept = self._current.find_one(unchanged, {"_id": True}) is not None
        removable = earlier(epoch if is_kept else epoch + 1)
        for ids in _pages(ended.process_id, [child.id for child in ended.children]):
            outdated = {"_id": {"$in": ids}, **removable}
            waiting = {**outdated, "state": DecisionState.WAITING.value}
            waiting_ids = [document["_id"] for document in self._current.find(waiting, {"_id": True})]
            self._decisions.delete_many({**waiting, "_id": {"$in": waiting_ids}})
            remaining = {
                document["_id"] for document in self._current.find({"_id": {"$in": waiting_ids}}, {"_id": True})
            }
            self._tasks.delete_many(
                {**outdated, "_id": {"$in": [child_id for child_id in waiting_ids if child_id not in remaining]}}
            )

    def forget(self, process_id: str, epoch: int, tasks: Sequence[str]) -> None:
        """Remove the Task records of dropped tasks that are of an earlier epoch.

        Batches are removed in the order of `tasks`. Until then the Task records show which task scheduled which.
        """
        for ids in _pages(process_id, tasks):
            self._tasks.delete_many({"_id": {"$in": ids}, **earlier(epoch)})

    def move(self, process_id: str, epoch: int) -> int:
        """Move all decisions of earlier epochs to this epoch without other changes. Return how many."""
        earlier_decisions = {**record_range(process_id), **earlier(epoch)}
        return self._decisions.update_many(earlier_decisions, {"$set": {"epoch": epoch}}).modified_count

    def fail_again(self, process_id: str, epoch: int, passes: Mapping[str, str]) -> int:
        """Make failed decisions of the new epoch due now, so that they are applied again. Return how many.

        Args:
            process_id: The process.
            epoch: The new epoch.
            passes: The pass of each failed task's outcome. A decision with another pass is skipped.
        """
        changed = 0
        for ids in _pages(process_id, passes):
            outcome_passes = {"$in": [passes[split_record_id(decision_id)[1]] for decision_id in ids]}
            failed = {"_id": {"$in": ids}, "epoch": epoch, "state": FINISHED, "outcome.pass": outcome_passes}
            changed += self._decisions.update_many(failed, [{"$set": {"recoveryTime": "$$NOW"}}]).modified_count
        return changed

    def release(self, process_id: str, epoch: int, tasks: Collection[str]) -> None:
        """Unset `children` of waiting tasks that were put back, because their children are dropped."""
        for ids in _pages(process_id, tasks):
            waiting = {"_id": {"$in": ids}, "epoch": epoch, "state": DecisionState.WAITING.value}
            self._decisions.update_many(waiting, {"$unset": {"children": ""}})

    def set_graph(self, graph: Graph) -> bool:
        """Replace a missing graph or one of an earlier epoch. Return False if a graph of this epoch exists."""
        document = to_document(graph)
        earlier_graph = {"_id": graph.id, **earlier(graph.epoch)}
        if self._graphs.replace_one(earlier_graph, document).modified_count == 1:
            return True
        return insert_missing(self._graphs, [document]) == 1

    def end(self, process_id: str, epoch: int, order: str | None) -> bool:
        """Complete a redo: unset redo and order, so the process is an ordinary one again.

        Compares epoch and order. Return False if another worker completed it.
        """
        guard = {"_id": process_id, "epoch": epoch, "order": order}
        return self._processes.update_one(guard, {"$unset": {"redo": "", "order": ""}}).modified_count == 1

    def _each(self, process_id: str, epoch: int, tasks: Collection[str], stages: list[Document]) -> int:
        return sum(
            self._decisions.update_many({"_id": {"$in": ids}, **earlier(epoch)}, stages).modified_count
            for ids in _pages(process_id, tasks)
        )


def _pages(process_id: str, tasks: Collection[str]) -> list[list[str]]:
    ids = [record_id(process_id, task) for task in tasks]
    return [ids[first : first + BATCH] for first in range(0, len(ids), BATCH)]


@contextmanager
def _readable(document: Document, kind: type[Record]) -> Iterator[None]:
    """Raise DamagedRecord if the block meets a value of a wrong type in the document."""
    try:
        yield
    except (TypeError, KeyError, AttributeError) as error:
        message = f"{kind.__name__} {document['_id']}: its links to other tasks can't be read"
        raise DamagedRecord(document["_id"], message, (), kind.__name__) from error
