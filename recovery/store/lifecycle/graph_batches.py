"""Updates of the graphs of several processes at once: the same as of one (`graphs`), by one round trip for all, and one
that reads them all.

The server's own answer to each update would be its view of that graph; of many at once it tells only how many changed.
So the graphs are read when all are written, small ones as they are, which costs less than to have the server work out
what is ready. In between others may have applied what ended meanwhile: of each it is seen then, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo import UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError

from recovery.store.client import Document
from recovery.store.concerns import current
from recovery.store.driver_errors import translated
from recovery.store.lifecycle.graphs import Finished, GraphView, apply_stages, candidates_of, open_guard
from recovery.store.splitting import find_keys, is_of_record

SMALL = 64 * 1024
"""Bytes of a graph that is read as a whole, at most."""
_PARTS: Document = {
    **dict.fromkeys(("epoch", "notFinished", "links", "finished"), True),
    "size": {"$bsonSize": "$$ROOT"},
}


@translated
class GraphBatches:
    """The collection `graphs`."""

    def __init__(self, collection: Collection[Document]) -> None:
        self._current = current(collection)

    def apply(self, ended: Mapping[str, tuple[int, Sequence[Finished]]]) -> dict[str, GraphView]:
        """`Graphs.apply` for many, {process: (epoch, its finished tasks)}: {process: its graph, now}, of those that
        are of this epoch and have all of these tasks as finished, whoever applied them. One that is not among them is
        as it was, or large, or can't be read; it is to be applied by itself.

        Restorable, as an apply of one is.
        """
        updates = [
            UpdateOne(open_guard(process_id, epoch, finished), apply_stages(finished))
            for process_id, (epoch, finished) in ended.items()
        ]
        try:
            self._current.bulk_write(updates, ordered=False)
        except BulkWriteError as error:
            if not is_of_record(error):
                raise  # else by itself it is told why
        small = {"$expr": {"$lte": [{"$bsonSize": "$$ROOT"}, SMALL]}}
        views: dict[str, GraphView] = {}
        for found in find_keys(self._current, ended, _PARTS, small):
            epoch, finished = ended[found["_id"]]
            view = _view(found, finished)
            if view is not None and view.applied and view.epoch == epoch:
                views[found["_id"]] = view
        return views


def _view(found: Document, finished: Sequence[Finished]) -> GraphView | None:
    """What `Graphs.view` has the server work out; None of a graph that another program wrote."""
    links, over, left, epoch = (found.get(name) for name in ("links", "finished", "notFinished", "epoch"))
    if not (isinstance(links, dict) and isinstance(over, list) and isinstance(left, dict) and isinstance(epoch, int)):
        return None
    tasks = [one.task for one in finished]
    applied = set(tasks) <= {one for one in over if isinstance(one, str)}
    return GraphView(
        epoch=epoch,
        registered=applied or tasks[0] in left,
        applied=applied,
        ready=tuple(one for one in candidates_of(finished) if _is_empty(links.get(one))),
        complete=not left,
        finished=len(over),
        size=found["size"],
    )


def _is_empty(links: Any) -> bool:
    return links is None or links == {}
