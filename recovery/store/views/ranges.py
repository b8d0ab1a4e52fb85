"""Reading a range of processes whole, for the sweep: streams in key order, and where to cut.

A process's records are neighbours in each collection, so a range of process ids is one range of keys in all
four. Of a decision the little is read that tells whether it is at rest; its other fields cost five times as
much to decode, and are read of those that are not. They can be had as bytes, too: who knows what most of them
look like need not decode them.
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

# A page of 2,000 decoded documents is 1 MB and stays in the processor's cache; 50,000 took a tenth longer.
PAGE = 2000
STEP = 20
"""Documents after which a page's weight is looked at: a page of the largest is no larger."""
PAGE_WEIGHT = 100_000
"""Tasks that the documents of a page name, about: 20 MB."""

KEY = {"_id": True}
"""Nothing but the key: answered from the index alone."""
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
    """Process ids from `start` up to, not including, `end`; None is open."""

    start: str | None = None
    end: str | None = None

    def condition(self) -> Document:
        """The keys of the records of these processes, in every collection: `P` as well as `P/T`. A key that is no text
        is none of ours."""
        return {"_id": {"$gte": self.start or ""} | ({} if self.end is None else {"$lt": self.end})}


def weight(collection: str, documents: Sequence[Document]) -> int:
    """How many tasks these graphs or decisions name; most decisions name none."""
    try:
        if collection == schema.DECISIONS:
            return sum([len(one["children"]) for one in documents if "children" in one])
        if collection == schema.GRAPHS:
            return sum([len(one.get("finished", ())) + len(one.get("notFinished", ())) for one in documents])
    except TypeError:  # something else is there, which whoever judges it will tell
        return len(documents)
    return 0


_ODD: dict[str, list[Document]] = {schema.DECISIONS: [NO_VALUE]}
"""Conditions of records whose fields have the right types and contradict each other, where the survey does not look."""


@translated
class Ranges:
    """Queries over ranges of processes, as a majority has them."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._zoneless = database.codec_options.with_options(tz_aware=False, tzinfo=None)

    def _told(self, collection: str) -> Collection[Document]:
        return committed(self._database[collection])

    def _naive(self, collection: str) -> Collection[Document]:
        """Whose times have no time zone, `zones.aware` gives it to what is looked at."""
        return self._told(collection).with_options(codec_options=self._zoneless)

    def pages(
        self, collection: str, part: Range, fields: Mapping[str, bool] | None = None, *, naive: bool = False
    ) -> Iterator[list[Document]]:
        """The documents of a range in key order, briefly, a page at a time. Index `_id_`. `naive`: see `_naive`."""
        told = self._naive(collection) if naive else self._told(collection)
        found = told.find(part.condition(), fields or BRIEF[collection], batch_size=PAGE)
        found.sort("_id", 1).hint("_id_")
        page, heavy = list[Document](), 0
        while some := found.to_list(STEP):
            page += some
            heavy += weight(collection, some)
            if len(page) >= PAGE or heavy > PAGE_WEIGHT:
                yield page
                page, heavy = [], 0
        if page:
            yield page

    def raw_pages(self, collection: str, part: Range) -> Iterator[bytes]:
        """The same as bytes, for who decodes few of them: a page is no larger than a reply, 16 MB. Index `_id_`."""
        find = {"filter": part.condition(), "projection": BRIEF[collection], "sort": {"_id": 1}, "hint": "_id_"}
        yield from raw_pages(self._told(collection), find, PAGE)

    def decoded(self, documents: bytes) -> list[Document]:
        """Documents of `raw_pages` as those of `pages` are."""
        return [*map(aware, decoded(documents, self._zoneless))]

    def matching(
        self, collection: str, conditions: Sequence[Document], fields: Mapping[str, bool]
    ) -> Iterator[list[Document]]:
        """Documents that meet all conditions, of which one names their keys, in no order, a page at a time. What has a
        key that is no text is none of ours, and is passed over."""
        found = self._told(collection).find({"$and": [*conditions]}, fields, batch_size=PAGE)
        while page := found.to_list(PAGE):
            yield [document for document in page if isinstance(document["_id"], str)]

    @staticmethod
    def records_of(process_ids: Sequence[str]) -> Document:
        """The condition that names all records of tasks of these processes."""
        return record_ranges(process_ids)

    def of_type(self, part: Range, process_type: str) -> list[str]:
        """Ids of a range's processes of one type, in order. Reads all Process records of the range."""
        query = part.condition() | {"type": process_type}
        return [d["_id"] for d in self._told(schema.PROCESSES).find(query, {"_id": True}).sort("_id", 1).hint("_id_")]

    def how_many_tasks(self, part: Range) -> int:
        """How many Task records a range has. Index `_id_`, and nothing but it: five times as fast as to read the
        keys."""
        return self._told(schema.TASKS).count_documents(part.condition(), hint="_id_")

    def tasks(self, process_ids: Sequence[str]) -> dict[str, list[str]]:
        """{process: the tasks of it that have a Task record}. Index `_id_`, and nothing but it."""
        found: dict[str, list[str]] = {process_id: [] for process_id in process_ids}
        of_them = record_ranges(process_ids)
        for document in self._told(schema.TASKS).find(of_them, KEY).hint("_id_").to_list() if found else ():
            process_id, task = split_record_id(document["_id"])
            found[process_id].append(task)
        return found

    def decisions(self, keys: Sequence[str]) -> Read[Decision]:
        """These decisions as rules look at them. Index `_id_`."""
        found: Read[Decision] = Read()
        for batch in batches(keys):
            documents = self._naive(schema.DECISIONS).find({"_id": {"$in": batch}}, DECISION_FIELDS).to_list()
            found += read(Decision, map(aware, documents), decision_of)
        return found

    def listed(self, process_ids: Sequence[str]) -> dict[str, dict[str, float]]:
        """{process: {task that is listed as interrupted: its `restarts`}} of broken processes. Index `_id`."""
        return interrupted(self._database, process_ids, committed)

    def damaged(self, part: Range) -> Iterator[str]:
        """Ids of a range's processes of which a record has something of a wrong type, or is odd. Has MongoDB look at
        all records of the range, for some 8 µs each: several times as long as all else that a sweep does."""
        for name in schema.OF_PROCESSES:
            yield from self._damaged(name, part.condition())

    def damaged_among(self, process_ids: Sequence[str]) -> Iterator[str]:
        """Those of these whose process or graph is so in what was not read of them. What is live of their decisions is
        read in full."""
        for name in (schema.PROCESSES, schema.GRAPHS):
            yield from self._damaged(name, {"_id": {"$in": list(process_ids)}}, BRIEF[name])

    def _damaged(self, name: str, among: Document, known: Many[str] = ()) -> Iterator[str]:
        wrong = {**among, "$or": [*wrong_types(definitions.KINDS[name], known=known), *_ODD.get(name, ())]}
        for document in self._told(name).find(wrong, KEY).hint("_id_"):
            yield split_record_id(document["_id"])[0]

    def walk(self, step: int) -> list[str]:
        """Every `step`-th process id, in order. Index `_id_`, whose keys alone are passed over: 3 million a second."""
        found: list[str] = []
        while True:
            beyond = {"_id": {"$gt": found[-1] if found else ""}}
            query = self._told(schema.PROCESSES).find(beyond, {"_id": True}).sort("_id", 1).hint("_id_")
            reached = next(query.skip(step - 1).limit(1), None)
            if reached is None:
                return found
            found.append(reached["_id"])

    def sample(self, size: int) -> list[str]:
        """Process ids of about `size` decisions drawn at random, in order: a process counts by its decisions.

        First in its pipeline and far below 5 % of a large collection, `$sample` jumps about with a random cursor
        and examines nothing else; a small collection it reads whole. What was written last, and is still one page
        in memory, it draws too rarely: of 100,000 processes just inserted, the last 28,000 made up a twentieth.
        """
        pipeline: list[dict[str, Any]] = [{"$sample": {"size": size}}, {"$project": {"_id": True}}]
        drawn = self._told(schema.DECISIONS).aggregate(pipeline)
        return sorted(split_record_id(document["_id"])[0] for document in drawn if isinstance(document["_id"], str))

    def volume(self) -> tuple[int, int]:
        """How many processes and decisions there are, from the collections' metadata: cheap, roughly right."""
        return (
            self._told(schema.PROCESSES).estimated_document_count(),
            self._told(schema.DECISIONS).estimated_document_count(),
        )
