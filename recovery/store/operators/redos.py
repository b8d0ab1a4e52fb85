"""Updates that have tasks of a process done again, in a new epoch of it (`engine.end.redo`).

The first is the commit point; each of the others names the new epoch and touches only what is of one before, so any
number may do so at once, and again. All are acknowledged by a majority: each is durable before the next one says that
it is done. Index `_id`: a process's records are one range of it.
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
"""What it had scheduled stays: whoever carries out the redo has to know it."""


@translated
class Redos:
    """Updates over the collections `processes`, `decisions`, `tasks` and `graphs`."""

    def __init__(self, database: Database[Document]) -> None:
        self._processes = committed(database[schema.PROCESSES])
        self._decisions = committed(database[schema.DECISIONS])
        self._current = current(database[schema.DECISIONS])
        self._tasks = committed(database[schema.TASKS])
        self._graphs = committed(database[schema.GRAPHS])

    def begin(self, seen: Process, life: Life, tasks: Sequence[str], key: str, within: float) -> bool:
        """finished|broken|running → running in the next epoch, to be carried out by the order of this key: the commit
        point. False: it is not as it was seen. Looked at in `within` seconds."""
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
        ended: Document = {"$mergeObjects": [literal(to_document(life)), {"endedAt": "$$NOW"}]}
        fields = {
            "state": ProcessState.RUNNING.value,
            "epoch": seen.epoch + 1,
            "reopened": seen.times_reopened + 1,
            "redo": literal(list(tasks)),
            "order": literal(key),
            "lives": with_life(ended),
            "restartedAt": "$$NOW",
            "recoveryTime": after(within),
        }
        gone = ["error", "result", "endedAt", "timedOutAt", "markerDue", "removing"]
        return self._processes.update_one(guard, [{"$set": fields}, {"$unset": gone}]).modified_count == 1

    def order(self, seen: Process, key: str) -> bool:
        """Have what was begun for a running process, as it was seen, be carried out by the order of this key; False: it
        is not as it was seen."""
        guard = {
            "_id": seen.id,
            "state": ProcessState.RUNNING.value,
            "epoch": seen.epoch,
            "redo": list(seen.redo),
            "order": seen.order,
        }
        return self._processes.update_one(guard, {"$set": {"order": key}}).modified_count == 1

    def pending(self, process_id: str) -> Process | None:
        """A process that runs and names an order, briefly: if that stands, its tasks are to be done again."""
        guard = {"_id": process_id, "state": ProcessState.RUNNING.value, "order": {"$exists": True}}
        found = self._processes.find_one(guard, PROCESS_FIELDS)
        return process_of(found) if found else None

    def epochs(self, process_id: str) -> list[int]:
        """Return the epochs of a process's decisions."""
        return [int(one) for one in self._decisions.distinct("epoch", record_range(process_id)) if isinstance(one, int)]

    def set_back(self, process_id: str, odd: Sequence[int], epoch: int) -> None:
        """Take decisions of epochs that were never begun, which another program wrote, to the one before this."""
        if odd:
            others = {**record_range(process_id), "epoch": {"$in": list(odd)}}
            self._decisions.update_many(others, {"$set": {"epoch": epoch - 1}})

    def links(self, process_ids: Sequence[str]) -> dict[str, dict[str, Link]]:
        """{process: what places each of its tasks}, by what its record says or, where that is gone, its decider's.
        Raises DamagedRecord."""
        places: dict[str, dict[str, Link]] = {process_id: {} for process_id in process_ids}
        waits: dict[str, dict[str, tuple[str, ...]]] = {process_id: {} for process_id in process_ids}
        ranges: Document = record_ranges(process_ids)
        for found in self._decisions.find(ranges, _LINKS).hint("_id_"):
            process_id, task = split_record_id(found["_id"])
            with _readable(found, Decision):
                waits[process_id][task] = tuple((found.get("outcome") or {}).get("waits", ()))
                for child in found.get("children", ()):
                    places[process_id][child["_id"]] = Link(task, tuple(child.get("deps", ())))
        for found in self._tasks.find(ranges, {"parent": True, "deps": True}).hint("_id_"):
            process_id, task = split_record_id(found["_id"])
            with _readable(found, Task):
                places[process_id][task] = Link(found.get("parent"), tuple(found.get("deps", ())))
        nowhere = Link()
        return {
            process_id: {
                task: replace(there.get(task, nowhere), waits=waits[process_id].get(task, ()))
                for task in there | waits[process_id]
            }
            for process_id, there in places.items()
        }

    def put_back(self, process_id: str, epoch: int, tasks: Collection[str]) -> int:
        """Whatever their state → waiting in this epoch. What they had scheduled stays with them: somebody else who
        carries this out has to know it. An eta that was a retry's or a refusal's is gone."""
        fields = {"state": DecisionState.WAITING.value, "epoch": epoch, **reset(Until.NEXT_EPOCH)}
        as_scheduled = {"$and": [{"$eq": [{"$type": f"${name}"}, "missing"]} for name in ("retry", "refused")]}
        eta = {"eta": {"$cond": [as_scheduled, "$eta", "$$REMOVE"]}}
        stages: list[Document] = [{"$set": eta}, {"$set": fields}, {"$unset": _PUT_BACK}]
        return self._each(process_id, epoch, tasks, stages)

    def drop(self, process_id: str, epoch: int, tasks: Sequence[str]) -> int:
        """Remove the decisions of these tasks, if they are of an epoch before; how many."""
        return sum(
            self._decisions.delete_many({"_id": {"$in": ids}, **earlier(epoch)}).deleted_count
            for ids in _pages(process_id, tasks)
        )

    def discard(self, epoch: int | None, ended: Decision) -> None:
        """Take back the tasks that a decision had scheduled and that were just made, since its process is in this epoch
        and it ended in one before; None: its process is gone. Looks for what is there now: of what was written a moment
        ago the majority knows nothing yet.

        What a kept one had scheduled is made again, or it is under way and left alone. Else none of them is part of
        this epoch, whichever it was taken to meanwhile.
        """
        if epoch is None:
            epoch = ended.epoch + 1
        held = {"_id": ended.id, "outcome.pass": ended.outcome.pass_key if ended.outcome is not None else None}
        is_kept = self._current.find_one(held, {"_id": True}) is not None
        of_before = earlier(epoch if is_kept else epoch + 1)
        for ids in _pages(ended.process_id, [child.id for child in ended.children]):
            late = {"_id": {"$in": ids}, **of_before}
            waiting = {**late, "state": DecisionState.WAITING.value}
            gone = [found["_id"] for found in self._current.find(waiting, {"_id": True})]
            self._decisions.delete_many({**waiting, "_id": {"$in": gone}})
            left = {found["_id"] for found in self._current.find({"_id": {"$in": gone}}, {"_id": True})}
            self._tasks.delete_many({**late, "_id": {"$in": [key for key in gone if key not in left]}})

    def forget(self, process_id: str, epoch: int, tasks: Sequence[str]) -> None:
        """Remove the Task records of what was dropped, of an epoch before, in this order: until then they tell what
        belonged to what."""
        for ids in _pages(process_id, tasks):
            self._tasks.delete_many({"_id": {"$in": ids}, **earlier(epoch)})

    def move(self, process_id: str, epoch: int) -> int:
        """Take all decisions that are there to this epoch, as they are: how many."""
        before = {**record_range(process_id), **earlier(epoch)}
        return self._decisions.update_many(before, {"$set": {"epoch": epoch}}).modified_count

    def fail_again(self, process_id: str, epoch: int, passes: Mapping[str, str]) -> int:
        """Have what is kept and has failed, {task: its outcome's pass}, applied in the new epoch: due now."""
        changed = 0
        for ids in _pages(process_id, passes):
            theirs = {"$in": [passes[split_record_id(key)[1]] for key in ids]}
            failed = {"_id": {"$in": ids}, "epoch": epoch, "state": FINISHED, "outcome.pass": theirs}
            changed += self._decisions.update_many(failed, [{"$set": {"recoveryTime": "$$NOW"}}]).modified_count
        return changed

    def release(self, process_id: str, epoch: int, tasks: Collection[str]) -> None:
        """Forget what tasks that were put back had scheduled: it is dropped."""
        for ids in _pages(process_id, tasks):
            waiting = {"_id": {"$in": ids}, "epoch": epoch, "state": DecisionState.WAITING.value}
            self._decisions.update_many(waiting, {"$unset": {"children": ""}})

    def set_graph(self, graph: Graph) -> bool:
        """Put this graph in the place of that of an epoch before, or of none; False: there is one of this epoch."""
        document = to_document(graph)
        before = {"_id": graph.id, **earlier(graph.epoch)}
        if self._graphs.replace_one(before, document).modified_count == 1:
            return True
        return insert_missing(self._graphs, [document]) == 1

    def end(self, process_id: str, epoch: int, order: str | None) -> bool:
        """All is carried out: from here on everybody looks at it as at any process. False: somebody else was first."""
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
def _readable(found: Document, kind: type[Record]) -> Iterator[None]:
    """What another program has put there is no list of tasks, perhaps."""
    try:
        yield
    except (TypeError, KeyError, AttributeError) as error:
        told = f"{kind.__name__} {found['_id']}: what it says of other tasks can't be read"
        raise DamagedRecord(found["_id"], told, (), kind.__name__) from error
