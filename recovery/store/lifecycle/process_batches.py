"""The ends of several processes at once, all of them plain: never done again or reopened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pymongo.collection import Collection

from recovery.records import Process
from recovery.store.client import Document
from recovery.store.concerns import committed, current
from recovery.store.driver_errors import translated
from recovery.store.expressions import by_id
from recovery.store.lifecycle.process_updates import ENDING, RUNNING
from recovery.store.lifecycle.processes import FINISHED, brief_of
from recovery.store.record_reading import readable
from recovery.store.splitting import find_keys, update_each


@dataclass(frozen=True, slots=True)
class Ends:
    """Which processes were finished by an update, and which are finished: by this one, or before. The first may lack
    some, where two were at it in the same millisecond."""

    by_this: set[str]
    there: set[str]


@translated
class ProcessBatches:
    """The collection `processes`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current, self._committed = current(collection), committed(collection)

    def ending(self, process_ids: Iterable[str]) -> dict[str, Process]:
        """`Processes.ending` of those of these that are there and can be read, {process: it, briefly}."""
        return {one.id: one for one in readable(Process, find_keys(self._current, process_ids, ENDING), brief_of)}

    def finish(self, results: Mapping[str, str]) -> Ends:
        """`Processes.finish` of {process: its result}, of those that are plain."""
        guard: Document = {"state": RUNNING, "epoch": 0, "reopened": None}
        ended = {"state": FINISHED, "result": by_id(results), "endedAt": "$$NOW"}
        stages: list[Document] = [{"$set": ended}, {"$unset": "recoveryTime"}]
        written = update_each(self._committed, list(results), guard, stages)
        if written.whole and written.count == len(results):
            return Ends(set(results), set(results))
        found = list(find_keys(self._committed, results, {"endedAt": True}, {"state": FINISHED}))
        # The server's time is the same for the whole of an update.
        moments = Counter(one.get("endedAt") for one in found)
        ours = [at for at, count in moments.items() if count == written.count and at is not None]
        by_this = {one["_id"] for one in found if len(ours) == 1 and one.get("endedAt") == ours[0]}
        return Ends(by_this, {one["_id"] for one in found})
