"""Reads ranges of processes for the sweep: streams in key order, and the data to plan where to cut.

A process's records are neighbours in each collection, so a range of process ids is one range of keys in all four
collections. Only those fields of a decision are read that show whether it is at rest, because the other fields cost
five times as much to decode; they are read for live decisions only. Decisions can be read as bytes too, for a caller
that recognizes most of them without decoding. All queries have read concern majority.
"""

from __future__ import annotations

from collections.abc import Collection as Many
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection
from pymongo.database import Database

from recovery.records import Decision
from recovery.records.ids import split_record_id
from recovery.store import definitions, schema
from recovery.store.client import Document
from recovery.store.concerns import committed
from recovery.store.driver_errors import translated
from recovery.store.expressions import record_ranges
from recovery.store.raw_pages import aware, decoded, raw_pages
from recovery.store.record_reading import DECISION_FIELDS, Read, decision_of, read, wrong_types
from recovery.store.splitting import batches
from recovery.store.views.snapshots import NO_VALUE, interrupted

# 2,000 decoded documents take 1 MB and stay in the processor's cache. Larger pages are slower.
PAGE = 2000
STEP = 20
"""Number of documents after which the weight of a page is checked. A page of very large documents has only this
many."""
PAGE_WEIGHT = 100_000
"""Maximum number of tasks that the documents of a page name, approximately. This many take about 20 MB."""

KEY = {"_id": True}
"""Projection of the key only, which MongoDB answers from the index."""
BRIEF: dict[str, dict[str, bool]] = {
    schema.PROCESSES: dict.fromkeys(
        (
            *("state", "epoch", "type", "startTask", "startedAt", "timedOutAt", "endedAt", "reopened", "error.task"),
            *("markerDue", "removing", "recoveryTime"),
        ),
        True,
    ),
    schema.GRAPHS: dict.fromkeys(
        (
            *("epoch", "version", "notFinished", "links", "finished", "failed", "restarted"),
            *("touchedAt", "recoveryTime"),
        ),
        True,
    ),
    schema.DECISIONS: dict.fromkeys(("state", "epoch", "children._id", "recoveryTime"), True),
    schema.TASKS: KEY,
}


@dataclass(frozen=True, slots=True)
class Range:
    """A range of process ids: `start` included, `end` excluded, None is open."""

    start: str | None = None
    end: str | None = None

    def condition(self) -> Document:
        """Return the condition for the keys of these processes' records in any collection, `P` as well as `P/T`.

        Keys that are not texts are not ours and do not match.
        """
        return {"_id": {"$gte": self.start or ""} | ({} if self.end is None else {"$lt": self.end})}


def weight(collection: str, documents: Sequence[Document]) -> int:
    """Return how many tasks these graphs or decisions name. Most decisions name none."""
    try:
        if collection == schema.DECISIONS:
            return sum([len(document["children"]) for document in documents if "children" in document])
        if collection == schema.GRAPHS:
            return sum(
                [len(document.get("finished", ())) + len(document.get("notFinished", ())) for document in documents]
            )
    except TypeError:  # damaged; whoever judges the document reports it
        return len(documents)
    return 0


_CONTRADICTIONS: dict[str, list[Document]] = {schema.DECISIONS: [NO_VALUE]}
"""Conditions of records whose fields have the right types but contradict each other. The survey does not read these
fields."""


@translated
class Ranges:
    """Queries over ranges of processes. Read concern majority."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._zoneless = database.codec_options.with_options(tz_aware=False, tzinfo=None)

    def _committed(self, collection: str) -> Collection[Document]:
        return committed(self._database[collection])

    def _naive(self, collection: str) -> Collection[Document]:
        """Return the collection with times that lack a time zone.

        `raw_pages.aware` adds it to documents that are used.
        """
        return self._committed(collection).with_options(codec_options=self._zoneless)

    def pages(
        self, collection: str, part: Range, fields: Mapping[str, bool] | None = None, *, naive: bool = False
    ) -> Iterator[list[Document]]:
        """Yield the documents of a range in key order, a page at a time. Index `_id_`.

        Args:
            collection: Name of the collection.
            part: The range.
            fields: Projection; by default that of `BRIEF`.
            naive: Whether times lack their time zone, which is faster.
        """
        source = self._naive(collection) if naive else self._committed(collection)
        cursor = source.find(part.condition(), fields or BRIEF[collection], batch_size=PAGE)
        cursor.sort("_id", 1).hint("_id_")
        page, total_weight = list[Document](), 0
        while step := cursor.to_list(STEP):
            page += step
            total_weight += weight(collection, step)
            if len(page) >= PAGE or total_weight > PAGE_WEIGHT:
                yield page
                page, total_weight = [], 0
        if page:
            yield page

    def raw_pages(self, collection: str, part: Range) -> Iterator[bytes]:
        """Yield the same documents as bytes, for a caller that decodes few of them.

        A page is at most one reply of 16 MB. Index `_id_`.
        """
        find = {"filter": part.condition(), "projection": BRIEF[collection], "sort": {"_id": 1}, "hint": "_id_"}
        yield from raw_pages(self._committed(collection), find, PAGE)

    def decoded(self, documents: bytes) -> list[Document]:
        """Decode documents of `raw_pages` into the same form as those of `pages`."""
        return [*map(aware, decoded(documents, self._zoneless))]

    def matching(
        self, collection: str, conditions: Sequence[Document], fields: Mapping[str, bool]
    ) -> Iterator[list[Document]]:
        """Yield documents that match all conditions, in no order, a page at a time.

        Documents whose key is not a text are skipped.

        One of the conditions must restrict the keys.
        """
        cursor = self._committed(collection).find({"$and": [*conditions]}, fields, batch_size=PAGE)
        while page := cursor.to_list(PAGE):
            yield [document for document in page if isinstance(document["_id"], str)]

    @staticmethod
    def records_of(process_ids: Sequence[str]) -> Document:
        """Return the condition for all task records of these processes."""
        return record_ranges(process_ids)

    def of_type(self, part: Range, process_type: str) -> list[str]:
        """Return the ids of a range's processes of one type, in order. Reads all Process records of the range."""
        query = part.condition() | {"type": process_type}
        return [
            document["_id"]
            for document in self._committed(schema.PROCESSES).find(query, {"_id": True}).sort("_id", 1).hint("_id_")
        ]

    def how_many_tasks(self, part: Range) -> int:
        """Return the number of Task records in a range.

        Counts in index `_id_` only, which is faster than reading the keys.
        """
        return self._committed(schema.TASKS).count_documents(part.condition(), hint="_id_")

    def tasks(self, process_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return the names of the tasks with a Task record, by process id. Reads index `_id_` only."""
        tasks: dict[str, list[str]] = {process_id: [] for process_id in process_ids}
        in_processes = record_ranges(process_ids)
        for document in self._committed(schema.TASKS).find(in_processes, KEY).hint("_id_").to_list() if tasks else ():
            process_id, task = split_record_id(document["_id"])
            tasks[process_id].append(task)
        return tasks

    def decisions(self, keys: Sequence[str]) -> Read[Decision]:
        """Return these decisions with the fields that rules need. Index `_id_`."""
        decisions: Read[Decision] = Read()
        for batch in batches(keys):
            documents = self._naive(schema.DECISIONS).find({"_id": {"$in": batch}}, DECISION_FIELDS).to_list()
            decisions += read(Decision, map(aware, documents), decision_of)
        return decisions

    def listed(self, process_ids: Sequence[str]) -> dict[str, dict[str, float]]:
        """Return {process id: {task listed as interrupted: its `restarts`}} of broken processes. Index `_id`."""
        return interrupted(self._database, process_ids, committed)

    def damaged(self, part: Range) -> Iterator[str]:
        """Yield the ids of a range's processes that have a record with wrong types or a contradiction.

        MongoDB examines all records of the range, which takes several times as long as the rest of a sweep.
        """
        for name in schema.OF_PROCESSES:
            yield from self._damaged(name, part.condition())

    def damaged_among(self, process_ids: Sequence[str]) -> Iterator[str]:
        """Yield those of these processes that have damage in the fields of process or graph that `BRIEF` leaves out.

        Live decisions are not checked here, because they are read in full.
        """
        for name in (schema.PROCESSES, schema.GRAPHS):
            yield from self._damaged(name, {"_id": {"$in": list(process_ids)}}, BRIEF[name])

    def _damaged(self, name: str, keys: Document, known: Many[str] = ()) -> Iterator[str]:
        wrong = {**keys, "$or": [*wrong_types(definitions.KINDS[name], known=known), *_CONTRADICTIONS.get(name, ())]}
        for document in self._committed(name).find(wrong, KEY).hint("_id_"):
            yield split_record_id(document["_id"])[0]

    def walk(self, step: int) -> list[str]:
        """Return every `step`-th process id in order. Reads the keys of index `_id_` only."""
        process_ids: list[str] = []
        while True:
            later = {"_id": {"$gt": process_ids[-1] if process_ids else ""}}
            query = self._committed(schema.PROCESSES).find(later, {"_id": True}).sort("_id", 1).hint("_id_")
            boundary = next(query.skip(step - 1).limit(1), None)
            if boundary is None:
                return process_ids
            process_ids.append(boundary["_id"])

    def sample(self, size: int) -> list[str]:
        """Return the process ids of about `size` random decisions, in order.

        Processes with more decisions occur more often.

        `$sample` as the first stage, and far below 5 % of a large collection, uses a random cursor; it reads a small
        collection completely. It draws records that were just written too rarely.
        """
        pipeline: list[dict[str, Any]] = [{"$sample": {"size": size}}, {"$project": {"_id": True}}]
        drawn = self._committed(schema.DECISIONS).aggregate(pipeline)
        return sorted(split_record_id(document["_id"])[0] for document in drawn if isinstance(document["_id"], str))

    def volume(self) -> tuple[int, int]:
        """Return the approximate numbers of processes and decisions from the collections' metadata."""
        return (
            self._committed(schema.PROCESSES).estimated_document_count(),
            self._committed(schema.DECISIONS).estimated_document_count(),
        )
