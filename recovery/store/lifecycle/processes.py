"""Updates of the Process records: starts and ends. `process_deadlines` has the updates of deadlines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from pymongo.errors import BulkWriteError, DuplicateKeyError

from recovery.records import (
    ErrorInfo,
    Mark,
    OrderKind,
    Process,
    ProcessState,
    to_document,
)
from recovery.store.client import Document
from recovery.store.driver_errors import DUPLICATE_KEY, translated
from recovery.store.expressions import (
    after,
    by_id,
    date_of,
    literal,
    size_of,
)
from recovery.store.lifecycle.process_deadlines import MarkerDue, ProcessDeadlines, ending_stages
from recovery.store.lifecycle.process_queries import RUNNING
from recovery.store.record_reading import PROCESS_FIELDS, process_of, readable
from recovery.store.splitting import find_keys, update_each

FINISHED, ABORTED = ProcessState.FINISHED.value, ProcessState.ABORTED.value


_ENDING: Document = {
    **dict.fromkeys(("type", "key", "startTask", "state", "epoch", "reopened", "markerDue", "order"), True),
    # The dates are needed for the duration only. A value that is no date is left out, so that it can't prevent the end.
    **{name: date_of(f"${name}", None) for name in ("startedAt", "restartedAt")},
    "bytes": size_of("args"),
}
"""Projection of a process that is about to end."""


class Standing(NamedTuple):
    """What fencing needs to know about an existing process."""

    epoch: int
    """Its epoch."""
    scheduled_by: str | None
    """Name of the schedule that started it, or None."""
    custom_id: str | None
    """Its custom id, or None."""
    mark: Mark | None
    """Its mark for removal, or None."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The processes that an update finished, and those that are finished now."""

    by_this: set[str]
    """Ids of the processes that this update finished. Some may be missing if another update finished processes in the
    same millisecond.
    """
    there: set[str]
    """Ids of the processes that are finished now, by this update or before."""


@translated
class Processes(ProcessDeadlines):
    """The collection `processes`."""

    def insert(self, process: Process, first_look: float) -> Process:
        """Save a new process with a first deadline. This write alone acknowledges the start.

        An upsert instead of an insert, because only an update can use the database's clock. May be run again after a
        lost reply. Written with a majority.

        Args:
            process: The process.
            first_look: Seconds to the first deadline.

        Returns:
            The process as it was saved or, without arguments and result, the process of the same type and custom id
            that existed already.
        """
        document = to_document(process)
        key = {"_id": document.pop("_id")}
        if process.custom_id is not None:
            key = {"type": document.pop("type"), "customId": document.pop("customId")}
            document["_id"] = process.id
        started = {"startedAt": "$$NOW", "recoveryTime": after(first_look)}
        new: Document = {"$mergeObjects": ["$$ROOT", literal(document), started]}
        stages = [{"$replaceWith": {"$ifNull": [existing(), new]}}]
        save = partial(
            # A write even if the process exists already: its id is returned to a client as well, so a majority must
            # have it.
            self._committed.find_one_and_update,
            key,
            stages,
            upsert=True,
            return_document=True,
            projection=PROCESS_FIELDS,
        )
        try:
            saved_document = save()
        except DuplicateKeyError:  # another upsert of the same custom id was faster: read what it saved
            saved_document = save()
        assert saved_document is not None
        saved = process_of(saved_document)
        return saved.evolve(args=process.args) if saved.id == process.id else saved

    def insert_many(
        self, processes: Sequence[Process], first_look: float, now: datetime, *, ordered: bool
    ) -> list[Process]:
        """Save many new processes. Return those that were saved, without those whose custom ids exist already.

        May be run again after a lost reply: a process whose own id exists already counts as saved. Written with a
        majority.

        Args:
            processes: The processes.
            first_look: Seconds from `now` to the first deadlines.
            now: The database's time. An insert can't use the database's clock.
            ordered: Stop at the first process whose custom id exists already.
        """
        remaining = [
            process.evolve(started_at=now, recovery_time=now + timedelta(seconds=first_look)) for process in processes
        ]
        saved: list[Process] = []
        while remaining:
            failures = self._insert_many(remaining, ordered=ordered)
            # The process's own id exists: an earlier call saved it, and the reply was lost.
            taken = {failure["index"] for failure in failures if failure.get("keyPattern") != {"_id": 1}}
            if not (ordered and failures):
                return saved + [process for number, process in enumerate(remaining) if number not in taken]
            first = int(failures[0]["index"])
            if taken:
                return saved + remaining[:first]
            saved, remaining = saved + remaining[: first + 1], remaining[first + 1 :]
        return saved

    def _insert_many(self, processes: Sequence[Process], *, ordered: bool) -> list[Document]:
        """Insert these processes. Return the write errors of those whose key exists already; raise every other
        error.
        """
        try:
            self._committed.insert_many([to_document(process) for process in processes], ordered=ordered)
        except BulkWriteError as error:
            failures: list[Document] = error.details["writeErrors"]
            if any(failure["code"] != DUPLICATE_KEY for failure in failures):
                raise
            return failures
        return []

    def give_up_custom_id(self, process_id: str, custom_id: str, to: str) -> bool:
        """Take the custom id from a finished or aborted process, for the process `to`. Return whether it was changed.

        Compares the custom id and the state. Written with a majority.
        """
        guard = {"_id": process_id, "customId": custom_id, "state": {"$in": [FINISHED, ABORTED]}}
        fields = {"formerCustomId": "$customId", "replacedBy": literal(to)}
        stages: list[Document] = [{"$set": fields}, {"$unset": "customId"}]
        return self._committed.update_one(guard, stages).modified_count == 1

    def standing(self, process_ids: Iterable[str]) -> dict[str, Standing]:
        """Return {process: its standing}, of those that exist on the primary with a readable epoch."""
        fields = dict.fromkeys(("epoch", "removing", "order", "scheduledBy", "customId"), True)
        return {
            document["_id"]: Standing(
                document.get("epoch", 0), document.get("scheduledBy"), document.get("customId"), _removing(document)
            )
            for document in find_keys(self._current, process_ids, fields)
            if isinstance(document.get("epoch", 0), int)
        }

    def ending(self, process_ids: Iterable[str]) -> dict[str, tuple[Process, int]]:
        """Return {process: (its record without arguments and result, bytes of its arguments)}, as the primary has them.

        Damaged processes are logged and left out.
        """
        documents = list(find_keys(self._current, process_ids, _ENDING))
        sizes = {document["_id"]: document["bytes"] for document in documents}
        return {process.id: (process, sizes[process.id]) for process in readable(Process, documents, process_of)}

    def finish(self, results: Mapping[str, str], epoch: int, reopened: int | None) -> Ends:
        """Finish (running → finished) these processes with their results, and clear their deadlines.

        Compares the state, the epoch and `reopened`. Written with a majority.

        Args:
            results: {process: JSON text of its result}.
            epoch: The epoch of all of them.
            reopened: How often each was set running again; None if never.
        """
        guard: Document = {"state": RUNNING, "epoch": epoch, "reopened": reopened}
        stages: list[Document] = [
            {"$set": {"state": FINISHED, "result": by_id(results), "endedAt": "$$NOW"}},
            {"$unset": "recoveryTime"},
        ]
        written = update_each(self._committed, list(results), guard, stages)
        if written.whole and written.count == len(results):
            return Ends(set(results), set(results))
        finished = list(find_keys(self._committed, results, {"endedAt": True}, {"state": FINISHED}))
        # `$$NOW` is the same for all records of one update, so the processes that it ended have the same `endedAt`.
        moments = Counter(document.get("endedAt") for document in finished)
        possible_moments = [at for at, count in moments.items() if count == written.count and at is not None]
        by_this = {
            document["_id"]
            for document in finished
            if len(possible_moments) == 1 and document.get("endedAt") == possible_moments[0]
        }
        return Ends(by_this, {document["_id"] for document in finished})

    def break_(
        self,
        process_id: str,
        epoch: int,
        error: ErrorInfo,
        reopened: int | None = None,
        marker: MarkerDue | None = None,
    ) -> bool:
        """Break (running → broken) a process with this error. Return False if it does not match any more.

        Compares the state, the epoch and `reopened`. Written with a majority.

        Args:
            process_id: The process.
            epoch: The epoch in which the error was found.
            error: The error.
            reopened: How often the process had been set running again when it was read.
            marker: The marker that the process must leave. Then the deadline is not cleared but set, until
                `settle_marker`.
        """
        fields = {"state": ProcessState.BROKEN.value, "error": to_document(error)}
        return self._end(process_id, epoch, fields, {"reopened": reopened}, marker)

    def _end(
        self,
        process_id: str,
        epoch: int,
        fields: Document,
        guard: Document | None = None,
        marker: MarkerDue | None = None,
    ) -> bool:
        """End a running process with these fields. Return whether it matched the state, the epoch and `guard`."""
        changed = self._committed.update_one(
            {"_id": process_id, "state": RUNNING, "epoch": epoch, **(guard or {})},
            ending_stages(fields, marker),
        )
        return changed.modified_count == 1

    def settle_marker(self, process: Process) -> bool:
        """Clear the deadline of a broken process whose marker is written.

        Compares the state, `reopened` and `markerDue`. Written to the primary alone: after a failover a scanner looks
        at the process once more.

        Returns:
            False if this was done already, or if the process was set running again.
        """
        guard = {"_id": process.id, "state": ProcessState.BROKEN.value, "reopened": process.reopened}
        changed = self._current.update_one(
            {**guard, "markerDue": True}, {"$unset": {"markerDue": "", "order": "", "recoveryTime": ""}}
        )
        return changed.modified_count == 1


def existing() -> Document:
    """Return an expression for the upsert in `insert`: the document if it existed before, else null."""
    return {"$cond": [{"$gt": ["$startedAt", None]}, "$$ROOT", None]}


def _removing(document: Document) -> Mark | None:
    """Return the mark for removal in a process's document, or None."""
    key = document.get("order")
    if key is None or not document.get("removing"):
        return None
    return Mark(document["_id"], OrderKind.REMOVE, key, document.get("epoch", 0))
