"""The short ways to a verdict agree with the rules, whatever the records are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.engine import Resources
from recovery.records import Decision, DecisionState, ProcessState, QueueStatistics, Task
from recovery.records.ids import new_process_id, record_id
from recovery.repair import look_at_all
from recovery.rules import Finding, Rule, Surroundings, judge_process
from recovery.store import schema
from recovery.store.record_reading import Read
from recovery.store.views import ranges
from recovery.store.views.ranges import BRIEF, PAGE, STEP, Range
from recovery.survey import Look, read, wrong_in
from recovery.survey.examine import NOTHING
from recovery.survey.outline import Source, live_keys, suspect
from recovery.survey.read import Outline, RangeCounts, at_rest, survey
from recovery.survey.record_streams import Stream
from tests.sweep.database import Database
from tests.sweep.shapes import BROKEN, ERROR, HEALTHY, MERGE, OLD, SIZE, Records, finished, part, running

pytestmark = pytest.mark.thorough

NOW = datetime(2026, 5, 1, tzinfo=UTC)
AROUND = Surroundings(
    now=NOW,
    queues={"part": QueueStatistics(id="part", polled_at=NOW, taken_queued_at=NOW)},
    depths={"part": 0, "merge": 0},
    lost_workers=frozenset({"gone"}),
)
TIMES = st.sampled_from([None, NOW - OLD, NOW, NOW + OLD])
EPOCHS = st.sampled_from([0, 0, 1, 2**63 - 1])
ABSURD = st.sampled_from([0.0, 1e15, 1e308, -1e20])


def outlined(records: Records) -> Outline:
    """What `survey` reads of a process."""
    documents = {
        name: [project(document, BRIEF[name]) for document in sorted(found, key=lambda one: str(one["_id"]))]
        for name, found in records.to_documents().items()
        if name in BRIEF
    }
    return Outline(
        process=documents[schema.PROCESSES][0],
        graphs=documents[schema.GRAPHS],
        keys=[document["_id"] for document in documents[schema.DECISIONS]],
        decisions=documents[schema.DECISIONS],
    )


def project(document: dict[str, Any], fields: dict[str, bool]) -> dict[str, Any]:
    """As the server does it."""
    found = {key: value for key, value in document.items() if key == "_id" or key in fields}
    if "error.task" in fields and "error" in document:
        found["error"] = {key: value for key, value in document["error"].items() if key == "task"}
    if "children._id" in fields and "children" in document:
        found["children"] = [{"_id": child["_id"]} for child in document["children"]]
    return found


def is_at_rest(records: Records) -> bool:
    """What `survey` concludes."""
    return at_rest(outlined(records))


def is_suspected(records: Records, around: Surroundings) -> bool:
    """What the rules say of the outline and the live decisions."""
    whole = {decision.id: decision for decision in records.decisions.values()}
    source = Source(
        decisions=lambda keys: Read([whole[key] for key in keys]),
        tasks=lambda ids: {key: list(records.tasks) for key in ids},
        listed=lambda ids: dict.fromkeys(ids, records.listed),
    )
    suspicion = suspect([outlined(records)], around, source)
    for snapshot, findings in suspicion.certain:
        assert snapshot.process_id == records.process.id
        wholly = judge_process(records.to_snapshot(), around)
        assert told(findings) == told(wholly), "what is certain is all that there is, and the same"
    return bool(suspicion.certain or suspicion.suspects)


def told(findings: Iterable[Finding]) -> list[tuple[str, str, str, str]]:
    return sorted((one.rule.value, one.record, one.repair.value, one.evidence) for one in findings)


@st.composite
def anything(draw: st.DrawFn) -> Records:
    """A process with some of its records and fields changed."""
    shape = draw(st.sampled_from([*HEALTHY, finished, finished, *BROKEN]))
    records = shape(new_process_id(), NOW)
    for _ in range(draw(st.integers(0, 3))):
        records = draw(st.sampled_from(CHANGES))(draw, records)
    return records


def change_decision(draw: st.DrawFn, records: Records) -> Records:
    if not records.decisions:
        return records
    changes: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "state": st.sampled_from(list(DecisionState)),
                "recovery_time": TIMES,
                "queued_at": TIMES,
                "worker": st.sampled_from([None, "w", "gone"]),
                "children": st.just(()),
                "epoch": EPOCHS,
                "eta": TIMES,
                "delay": ABSURD,
                "timeouts": st.sampled_from([0, 2**63 - 1]),
            },
        )
    )
    return records.change(draw(st.sampled_from(sorted(records.decisions))), **changes)


def drop_record(draw: st.DrawFn, records: Records) -> Records:
    kind, task = draw(st.sampled_from(["tasks", "decisions"])), draw(st.sampled_from(["start", MERGE, part(1)]))
    return replace(records, **{kind: {t: one for t, one in getattr(records, kind).items() if t != task}})


def add_record(draw: st.DrawFn, records: Records) -> Records:
    key = record_id(records.process.id, "extra")
    tasks = {**records.tasks, "extra": Task(id=key, actor="part", args="[[],{}]")}
    decisions = {**records.decisions, "extra": Decision(id=key, actor="part")}
    return replace(records, **draw(st.sampled_from([{"tasks": tasks}, {"decisions": decisions}])))


def change_process(draw: st.DrawFn, records: Records) -> Records:
    state = draw(st.sampled_from(list(ProcessState)))
    error = draw(st.sampled_from([records.process.error, None, ERROR, ERROR.evolve(task=part(1))]))
    changes: dict[str, Any] = draw(
        st.fixed_dictionaries({}, optional={"epoch": EPOCHS, "idle_timeout": ABSURD, "started_at": TIMES})
    )
    changes |= {"state": state, "error": error, "recovery_time": draw(TIMES)}
    return replace(records, process=records.process.evolve(**changes))


def change_graph(draw: st.DrawFn, records: Records) -> Records:
    if records.graph is None or draw(st.booleans()):
        return replace(records, graph=None)
    changes: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "not_finished": st.just({MERGE: NOW - OLD}),
                "finished": st.just(records.graph.finished[1:]),
                "failed": st.sampled_from([{}, {MERGE: True}, {part(1): True}]),
                "touched_at": TIMES,
                "epoch": EPOCHS,
            },
        )
    )
    return replace(records, graph=records.graph.evolve(**changes))


CHANGES = [change_decision, change_decision, drop_record, add_record, change_process, change_graph]


@settings(max_examples=1000, deadline=None)
@given(anything())
def test_no_rule_finds_anything_in_what_is_plainly_at_rest(records: Records) -> None:
    if is_at_rest(records):
        for later in (timedelta(0), timedelta(days=1000)):
            assert judge_process(records.to_snapshot(), replace(AROUND, now=NOW + later)) == []


@settings(max_examples=1000, deadline=None)
@given(anything())
def test_an_outline_is_suspected_exactly_when_a_rule_finds_something(records: Records) -> None:
    for later in (timedelta(0), timedelta(days=1000)):
        around = replace(AROUND, now=NOW + later)
        assert is_suspected(records, around) == bool(judge_process(records.to_snapshot(), around))


@pytest.mark.parametrize("shape", BROKEN)
def test_each_defect_shows_in_outline(shape: Any) -> None:
    assert is_suspected(shape(new_process_id(), NOW), AROUND)


def test_of_a_running_process_only_the_live_decisions_are_read_in_full() -> None:
    records = running(new_process_id(), NOW)
    live = {part(place) for place in range(4)}
    assert {*live_keys(outlined(records))} == {record_id(records.process.id, task) for task in live}


def test_a_finished_process_is_plainly_at_rest() -> None:
    assert is_at_rest(finished(new_process_id(), NOW))


@pytest.mark.parametrize("shape", [running, *BROKEN])
def test_nothing_else_is(shape: Any) -> None:
    assert not is_at_rest(shape(new_process_id(), NOW))


@settings(max_examples=200)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12),
    page=st.integers(1, 7),
)
def test_a_stream_hands_out_each_process_whatever_the_pages(sizes: list[tuple[int, bool]], page: int) -> None:
    keys = {f"{place:032x}": size for place, (size, _) in enumerate(sizes)}
    documents = [{"_id": record_id(key, f"t{place}")} for key, size in keys.items() for place in range(size)]
    stream = Stream(iter([documents[at : at + page] for at in range(0, len(documents), page)]))
    for (key, size), (_, asked) in zip(keys.items(), sizes, strict=True):
        if asked:
            found, taken = stream.take(key)
            assert found == [record_id(key, f"t{place}") for place in range(size)]
            assert [document["_id"] for document in taken] == found


def test_a_survey_counts_and_sets_aside(database: Database) -> None:
    for _ in range(3):
        database.add(finished)
    odd = [database.add(shape) for shape in (running, *BROKEN)]
    seen = RangeCounts()
    aside = [one.process["_id"] for page in survey(database.store.ranges, Range(), seen) for one in page]
    assert seen.processes == 3 + len(odd)
    assert sorted(aside) == sorted(odd)


def test_an_outline_read_from_the_server_is_what_the_tests_above_take_it_for(database: Database) -> None:
    for shape in (running, *BROKEN):
        records = shape(new_process_id(), database.now)
        database.insert(records)
        (outline,) = chain(*survey(database.store.ranges, Range(records.process.id), RangeCounts()))
        assert outline == outlined(records)


def test_a_process_that_is_longer_than_a_page(database: Database) -> None:
    records = finished(new_process_id(), database.now)
    many = [f"t{place:05}" for place in range(PAGE + 1)]
    decision, task = records.decisions["start"], records.tasks["start"]
    keys = {name: record_id(records.process.id, name) for name in many}
    assert records.graph is not None
    large = replace(
        records,
        graph=records.graph.evolve(finished=(*records.graph.finished, *many)),
        tasks={**records.tasks, **{name: task.evolve(id=key) for name, key in keys.items()}},
        decisions={**records.decisions, **{n: decision.evolve(id=k, children=()) for n, k in keys.items()}},
    )
    database.add(finished)
    database.insert(large)
    database.add(finished)
    seen = RangeCounts()
    assert not any(survey(database.store.ranges, Range(), seen))
    assert (seen.processes, seen.decisions) == (3, 3 * SIZE + len(many))


def test_who_goes_through_a_range_hears_of_each_portion(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be nothing wrong in it, nothing of it left but records of no process, or it looked through for damage."""
    monkeypatch.setattr(ranges, "PAGE", STEP)
    monkeypatch.setattr(read, "READ_EACH", STEP)
    monkeypatch.setattr(read, "CUT_EACH", 2 * STEP)
    count, around = 20, look_at_all(Resources.connect(database.settings))
    for _ in range(count):
        database.add(finished)
    records = count * (SIZE + 1)
    for thorough, more in ((False, 0), (True, count * SIZE)):
        seen = RangeCounts()
        heard = [*wrong_in(database.store, Look(around, thorough=thorough), Range(), seen)]
        assert heard == [NOTHING] * len(heard) and (seen.processes, seen.decisions) == (count, count * SIZE)
        assert len(heard) >= (records + more) / (2 * STEP)
        assert len(seen.cuts) >= records / (2 * STEP) - 2
    some = RangeCounts()
    broken_off = wrong_in(database.store, Look(around), Range(), some)
    assert next(broken_off) == NOTHING and some.processes < count / 2, "not all of it is read before that is heard"
    database.store.database[schema.PROCESSES].delete_many({})
    gone = [*wrong_in(database.store, Look(around), Range(), RangeCounts())]
    assert gone.count(NOTHING) >= count * SIZE / (2 * STEP)
    assert sum(len(findings) for _, findings in gone) == count


@pytest.mark.parametrize("every", [2, 7])
def test_damage_is_found_whatever_the_portions(database: Database, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    monkeypatch.setattr(read, "CUT_EACH", every * (SIZE + 1))
    around, spoilt = look_at_all(Resources.connect(database.settings)), set[str]()
    for number in range(12):
        process_id = database.add(finished)
        if number % 3 == 0:
            spoilt.add(process_id)
            update = {"q": {"_id": f"{process_id}/start"}, "u": {"$set": {"args": [1]}}}
            database.store.database.command("update", "tasks", updates=[update], bypassDocumentValidation=True)
    seen = RangeCounts()
    found = [
        one for _, findings in wrong_in(database.store, Look(around, thorough=True), Range(), seen) for one in findings
    ]
    assert len(seen.cuts) >= 12 // every - 1
    assert [one.rule for one in found] == [Rule.RECORD_DAMAGED] * 4 and {one.process_id for one in found} == spoilt
