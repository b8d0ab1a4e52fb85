"""What is passed over as the same bytes as what was looked at would have been passed over decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, cast

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.records.ids import new_process_id, record_id
from recovery.store import schema
from recovery.store.views import ranges
from recovery.store.views.ranges import BRIEF, Range, Ranges
from recovery.survey import record_streams
from recovery.survey.read import RangeCounts, survey
from recovery.survey.record_streams import Forms, RawStream
from tests.sweep.database import Database
from tests.sweep.shapes import SIZE, Records, finished, part, running
from tests.sweep.test_read import NOW, anything, is_at_rest, outlined, project

pytestmark = pytest.mark.thorough

Documents = Sequence[Mapping[str, Any]]


class Stored:
    """What `survey` asks of the store, of documents that never were in one."""

    def __init__(self, processes: Sequence[Records], strays: Documents = (), size: int = 3) -> None:
        self._size = size
        self.decoded_bytes = 0
        self._documents: dict[str, list[dict[str, Any]]] = {name: [] for name in BRIEF}
        self._documents[schema.DECISIONS] += [dict(one) for one in strays]
        for records in processes:
            for name, found in records.to_documents().items():
                if name in BRIEF:
                    self._documents[name] += [project(one, BRIEF[name]) for one in found]
        for found in self._documents.values():
            found.sort(key=lambda one: str(one["_id"]))

    def pages(self, name: str, _part: Range, *, naive: bool = False) -> Iterator[list[dict[str, Any]]]:
        found = self._documents[name]
        if naive:
            found = [bson.decode(bson.encode(one)) for one in found]
        for at in range(0, len(found), self._size):
            yield found[at : at + self._size]

    def raw_pages(self, name: str, part: Range) -> Iterator[bytes]:
        for page in self.pages(name, part):
            yield b"".join(map(bson.encode, page))
        yield b""  # as MongoDB answers who asks for more, and there is none

    def decoded(self, documents: bytes) -> list[dict[str, Any]]:
        self.decoded_bytes += len(documents)
        return bson.decode_all(documents)


def surveyed(stored: Stored, chosen: set[str] | None = None) -> tuple[list[str], RangeCounts]:
    """Ids of what is set aside, and what was counted."""
    seen = RangeCounts()
    aside = chain(*survey(cast(Ranges, stored), Range(), seen, chosen))
    return [outline.process["_id"] for outline in aside], seen


def count(processes: Sequence[Records]) -> int:
    return sum(len(one.decisions) for one in processes)


@settings(max_examples=400, deadline=None)
@given(st.lists(anything(), min_size=1, max_size=6), st.integers(1, 30))
def test_what_is_passed_over_is_at_rest(processes: list[Records], size: int) -> None:
    processes = [finished("0" * 32, NOW), *sorted(processes, key=lambda one: one.process.id)]
    aside, seen = surveyed(Stored(processes, size=size))
    assert aside == [one.process.id for one in processes if not is_at_rest(one)]
    assert (seen.processes, seen.decisions) == (len(processes), count(processes))
    assert seen.tasks == count([one for one in processes if is_at_rest(one)])


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.lists(st.integers(0, 3), max_size=5))
def test_what_is_alike_is_decoded_once(size: int, kinds: list[int]) -> None:
    """Whatever else there is between, and in whatever order its tasks were finished."""
    shapes = [finished, shuffled, running, smaller]
    chosen = [finished, *(shapes[kind] for kind in kinds), finished, smaller, smaller]
    stored = Stored([shape(new_process_id(), NOW) for shape in chosen], size=size)
    surveyed(stored)
    decisions = [outlined(shape(new_process_id(), NOW)).decisions for shape in (finished, running, smaller)]
    sizes = [sum(len(bson.encode(one)) for one in some) for some in decisions]
    assert stored.decoded_bytes == sizes[0] + sizes[1] * kinds.count(2) + sizes[2]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(anything(), st.booleans()), min_size=1, max_size=8), st.integers(1, 30))
def test_of_the_chosen_ones_the_same(drawn: list[tuple[Records, bool]], size: int) -> None:
    drawn.sort(key=lambda one: one[0].process.id)
    drawn = [(finished("0" * 32, NOW), True), *drawn, (finished("f" * 32, NOW), True)]
    processes = [records for records, _ in drawn]
    chosen = [records for records, is_chosen in drawn if is_chosen]
    aside, seen = surveyed(Stored(processes, size=size), {one.process.id for one in chosen})
    assert aside == [one.process.id for one in chosen if not is_at_rest(one)]
    assert (seen.processes, seen.decisions, seen.orphans) == (len(chosen), count(chosen), set())


def test_of_the_chosen_ones_those_alike_are_decoded_once() -> None:
    """Whatever lies between them."""
    ids = sorted(new_process_id() for _ in range(9))
    stored = Stored([finished(one, NOW) for one in ids])
    aside, _ = surveyed(stored, set(ids[::2]))
    assert aside == [] and stored.decoded_bytes == sum(
        len(bson.encode(one)) for one in outlined(finished(new_process_id(), NOW)).decisions
    )


def empty(process_id: str, now: Any) -> Records:
    """Finished, and nothing of it is there but its graph."""
    records = finished(process_id, now)
    assert records.graph is not None
    return replace(records, graph=records.graph.evolve(finished=()), decisions={}, tasks={})


def test_nothing_is_concluded_from_a_process_without_decisions() -> None:
    """As if all that have none to come were like it."""
    ids = sorted(new_process_id() for _ in range(4))
    spoilt = replace(empty(ids[3], NOW), decisions={"start": running(ids[3], NOW).decisions[part(1)]})
    spoilt = replace(spoilt, decisions={"start": spoilt.decisions["start"].evolve(id=record_id(ids[3], "start"))})
    processes = [empty(ids[0], NOW), finished(ids[1], NOW), finished(ids[2], NOW), spoilt]
    aside, seen = surveyed(Stored(processes), {ids[0], ids[3]})
    assert aside == [ids[3]] and seen.decisions == 1


@pytest.mark.parametrize("process_id", ["", "state", "e", "_id"])
def test_ids_that_are_none_of_ours(process_id: str) -> None:
    """Another program wrote them: what is theirs may stand elsewhere in a record, or be nothing at all."""
    odd, ours = finished(process_id, NOW), finished("f" * 32, NOW)
    aside, seen = surveyed(Stored(sorted([odd, ours], key=lambda one: one.process.id)))
    assert aside == [] and seen.decisions == 2 * SIZE


def test_what_has_the_id_elsewhere_is_no_form() -> None:
    """`state/t` says `state: finished`, and `stbte/t` the same of a field that does not exist."""
    one, other = (smaller(process_id, NOW) for process_id in ("state", "stbte"))
    stored = Stored([one, other])
    (decision,) = (found for found in stored._documents[schema.DECISIONS] if found["_id"].startswith("stbte"))
    decision["stbte"] = decision.pop("state")
    decision |= {"epoch": decision.pop("epoch", 0)}
    first = next(found for found in stored._documents[schema.DECISIONS] if found["_id"].startswith("state"))
    first |= {"epoch": first.pop("epoch", 0)}
    assert surveyed(stored)[0] == ["stbte"]


def shuffled(process_id: str, now: Any) -> Records:
    records = finished(process_id, now)
    assert records.graph is not None
    return replace(records, graph=records.graph.evolve(finished=records.graph.finished[::-1]))


def smaller(process_id: str, now: Any) -> Records:
    """Of a single task, which is the first of the others."""
    records = finished(process_id, now)
    assert records.graph is not None
    start = records.decisions["start"].evolve(children=())
    graph = records.graph.evolve(finished=("start",))
    return replace(records, graph=graph, decisions={"start": start}, tasks={"start": records.tasks["start"]})


@pytest.mark.parametrize("more", ["zz", "start/x"])
def test_one_record_more(more: str) -> None:
    """The bytes of a known form, and behind them another record of the process."""
    ids = sorted(new_process_id() for _ in range(3))
    stray = {"_id": record_id(ids[1], more), "state": "finished"}
    stored = Stored([finished(one, NOW) for one in ids], [stray])
    aside, seen = surveyed(stored)
    assert aside == [ids[1]] and seen.decisions == 3 * SIZE + 1 and not seen.orphans


def test_records_of_no_process() -> None:
    """Before, between and behind known forms."""
    ids = sorted(new_process_id() for _ in range(5))
    strays = [{"_id": record_id(one, part(1)), "state": "finished"} for one in ids[::2]]
    for size in (1, 7, 100):
        aside, seen = surveyed(Stored([finished(one, NOW) for one in ids[1::2]], strays, size))
        assert aside == [] and seen.orphans == set(ids[::2]) and seen.decisions == 2 * SIZE


@settings(max_examples=200)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["take", "comes", "pass"])), max_size=12),
    page=st.integers(1, 7),
)
def test_a_stream_of_bytes_hands_out_each_process(sizes: list[tuple[int, str]], page: int) -> None:
    keys = {f"{place:032x}": size for place, (size, _) in enumerate(sizes)}
    of = {key: [{"_id": record_id(key, f"t{place}")} for place in range(size)] for key, size in keys.items()}
    documents = [bson.encode(one) for some in of.values() for one in some]
    stream = RawStream(b"".join(documents[at : at + page]) for at in range(0, len(documents), page))
    passed = set[str]()
    for (key, found), (_, asked) in zip(of.items(), sizes, strict=True):
        whole = b"".join(map(bson.encode, found))
        if asked == "pass":
            passed |= {key} if found else set()
        elif asked == "comes" and not passed - stream.passed_over:
            if found:
                less = b"".join(map(bson.encode, found[:-1]))
                assert not stream.comes(key.encode(), less), "one of it is left"
                assert not stream.comes(key.encode(), whole[:-1] + b"\1")
            assert stream.comes(key.encode(), whole)
        else:
            stream.pass_over_before(key.encode())
            assert stream.take(key.encode()) == whole
    for _ in stream.pass_over_rest():
        pass
    assert stream.passed_over == passed


def test_forms_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more of them than may be held, be they of the same tasks or of others; and what comes again is learned."""
    monkeypatch.setattr(record_streams, "MAX_FORM_BYTES", 1000)
    key, known = b"p" * 32, Forms()
    for number in range(200):
        tasks = frozenset({f"t{number % 30}"})
        known.learn(tasks, key, key + b"/%04d" % number * 3, 1)
        assert next(form.of(key) for form in known.of(tasks)) == key + b"/%04d" % number * 3
        held = [form.of(key) for some in known._known.values() for form in some]
        assert sum(map(len, held)) == known._bytes <= 1000
    for number in range(record_streams.MAX_FORMS_ALIKE + 3):
        known.learn(frozenset(), key, key + b"%d" % number, 1)
    assert [form.of(key) for form in known.of(frozenset())] == [
        key + b"%d" % number for number in range(record_streams.MAX_FORMS_ALIKE + 2, 2, -1)
    ]
    for records, count in ((b"", 0), (key + key, 1), (b"q", 1), (key + b"z" * record_streams.MAX_PROCESS_BYTES, 1)):
        known.learn(frozenset({"odd"}), key, records, count)
    assert not known.of(frozenset({"odd"}))
    assert known._bytes == sum(len(form.of(key)) for some in known._known.values() for form in some)


def test_the_bytes_that_the_server_sends(database: Database) -> None:
    """A page as it comes is what its documents decoded are, and longer ones come in more pages than one."""
    for shape in (finished, running, finished):
        database.add(shape)
    stored = database.store.ranges
    for name in (schema.DECISIONS, schema.GRAPHS):
        raw = [one for page in stored.raw_pages(name, Range()) for one in stored.decoded(page)]
        assert raw == [one for page in stored.pages(name, Range()) for one in page] != []
    assert [*stored.raw_pages(schema.DECISIONS, Range("~"))] == [b""]


def test_who_wants_no_more_leaves_no_cursor(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "PAGE", 5)
    database.add(finished)
    stored, admin = database.store.ranges, database.store.database.client.admin

    def idle() -> int:
        namespace = f"{database.store.database.name}.{schema.DECISIONS}"
        found = admin.aggregate([{"$currentOp": {"idleCursors": True}}, {"$match": {"ns": namespace}}])
        return sum(one.get("type") == "idleCursor" for one in found)

    pages = stored.raw_pages(schema.DECISIONS, Range())
    assert len(stored.decoded(next(pages))) == 5 and idle() == 1
    del pages
    assert idle() == 0
    assert len([*stored.raw_pages(schema.DECISIONS, Range())]) == 3 and idle() == 0
