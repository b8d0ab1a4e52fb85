"""Graphs that name other tasks than the decisions, and records of another epoch than their process."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from recovery.errors import DamagedRecord
from recovery.records import Child, Decision, DecisionState, ErrorInfo, Graph, Outcome, Process, ProcessState
from recovery.rules import Finding, Repair, Rule, Snapshot
from recovery.rules.derived_graph import epoch_wrong, graph_contradicted, is_intact, is_untouched, scheduled_tasks
from tests.rules.surroundings import JUST_NOW, LONG_AGO, MARGIN, NOW, TICK, around


def finished(task: str, *children: str, error: bool = False) -> Decision:
    failure = ErrorInfo(kind="ValueError", message="no") if error else None
    outcome = Outcome(pass_key="k", value=None if error else "1", error=failure)
    made = tuple(Child(id=child, actor="a", args="") for child in children)
    return Decision(id=f"p/{task}", actor="a", state=DecisionState.FINISHED, outcome=outcome, children=made)


def queued(task: str) -> Decision:
    return Decision(id=f"p/{task}", actor="a", state=DecisionState.QUEUED)


def process(
    *decisions: Decision, open: str = "", finished: str = "", tasks: str = "", touched_at: datetime | None = LONG_AGO,
    **changes: Any,
) -> Snapshot:  # fmt: skip
    """A process with these decisions; its graph names these tasks."""
    return Snapshot(
        process_id="p",
        process=Process(id="p", type="order", args="", **changes),
        graph=Graph(
            id="p", not_finished=dict.fromkeys(open.split(), NOW), finished=(*finished.split(),), touched_at=touched_at
        ),
        decisions={one.task_id: one for one in decisions},
        tasks=frozenset(tasks.split()),
    )


HEALTHY = process(finished("start", "a", "b"), queued("a"), queued("b"), open="a b", finished="start")
LACKING = process(finished("start", "a", "b"), queued("a"), queued("b"), open="", finished="start")
FOREIGN = process(finished("start", "a"), queued("a"), open="a y x", finished="start z")


def judged(snapshot: Snapshot) -> list[Finding]:
    return list(graph_contradicted(snapshot, around()))


def test_a_graph_that_names_what_was_scheduled_is_left_alone() -> None:
    assert judged(HEALTHY) == []


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        (LACKING, "it lacks 2 of 3 tasks that were scheduled, first a"),
        (
            process(finished("start", "a"), queued("a"), open="a x y", finished="start"),
            "it names 2 that nobody scheduled, first x",
        ),
        (
            process(finished("start", "a"), queued("a"), open="x", finished="start"),
            "it lacks 1 of 2 tasks that were scheduled, first a; it names 1 that nobody scheduled, first x",
        ),
    ],
)
def test_a_graph_that_names_other_tasks_is_made_anew(snapshot: Snapshot, said: str) -> None:
    assert judged(snapshot) == [Finding(Rule.GRAPH_CONTRADICTED, "p", Repair.REMAKE_GRAPH, said)]


def test_tasks_with_a_record_of_their_own_are_not_foreign() -> None:
    with_record = process(finished("start", "a"), queued("a"), queued("x"), open="a x y", finished="start", tasks="y")
    assert judged(with_record) == []


def test_a_scheduled_task_whose_decision_is_lost_is_another_rules() -> None:
    assert judged(process(finished("start", "a"), open="", finished="start")) == []


def test_nothing_is_concluded_while_somebody_is_at_it_or_records_are_missing() -> None:
    assert LACKING.graph is not None
    assert judged(replace(LACKING, graph=LACKING.graph.evolve(touched_at=JUST_NOW))) == []
    assert judged(replace(LACKING, graph=None)) == judged(replace(LACKING, process=None)) == []
    assert judged(replace(LACKING, damaged=(DamagedRecord("p/x", "no date"),))) == []
    assert judged(FOREIGN) == [], "a task that the graph has as finished has no decision"


def test_a_finished_process_with_tasks_that_are_not_done_is_reported_alone() -> None:
    at_rest = {"state": ProcessState.FINISHED}
    undone = process(finished("start", "a", "b", "c"), queued("b"), finished("a"), finished="start a", **at_rest)
    assert judged(undone) == [
        Finding(
            Rule.FINISHED_TOO_EARLY, "p", Repair.REPORT,
            "finished, and its graph lacks 2 tasks that are not done, first b",
        )
    ]  # fmt: skip
    failed = process(finished("start", "a"), finished("a", error=True), finished="start", **at_rest)
    assert [one.rule for one in judged(failed)] == [Rule.FINISHED_TOO_EARLY], "an error is not done"
    done = process(finished("start", "a"), finished("a"), finished="start", **at_rest)
    assert [one.rule for one in judged(done)] == [Rule.GRAPH_CONTRADICTED]


def test_of_a_running_process_open_tasks_are_no_matter() -> None:
    assert [one.rule for one in judged(LACKING)] == [Rule.GRAPH_CONTRADICTED]


def test_children_count_as_scheduled_once_their_parent_is_applied() -> None:
    parent = finished("start", "a")
    assert scheduled_tasks(process(parent, open="", finished="start")) == {"start", "a"}
    assert scheduled_tasks(process(parent, open="start")) == {"start"}, "perhaps they are not there yet"
    assert scheduled_tasks(process(parent)) == {"start", "a"}, "the graph lacks it altogether"
    assert scheduled_tasks(process(finished("start", "a", error=True), finished="start")) == {"start"}
    assert scheduled_tasks(process(queued("start"), queued("other"))) == {"start"}


def test_decisions_are_intact_if_all_that_the_graph_has_as_finished_are_there_and_finished() -> None:
    assert is_intact(HEALTHY)
    assert is_intact(replace(HEALTHY, graph=None))
    assert not is_intact(replace(HEALTHY, process=None))
    assert not is_intact(replace(HEALTHY, damaged=(DamagedRecord("p/x", "no date"),)))
    assert not is_intact(process(queued("a"), open="a")), "its start is lost"
    assert not is_intact(process(finished("start"), finished="start a"))
    assert not is_intact(process(finished("start"), queued("a"), finished="start a"))


@pytest.mark.parametrize(
    ("touched_at", "expected"), [(None, False), (NOW - MARGIN, False), (NOW - MARGIN - TICK, True)]
)
def test_a_graph_is_untouched_once_no_step_can_be_under_way(touched_at: datetime | None, expected: bool) -> None:
    graph = Graph(id="p", touched_at=touched_at)
    assert is_untouched(graph, around()) is expected
    assert not is_untouched(graph, around(as_of=NOW - MARGIN)), "as of when the records were read"


def test_records_of_another_epoch_are_counted_and_the_first_is_named() -> None:
    other = [queued("a").evolve(epoch=2), queued("b").evolve(epoch=3)]
    assert list(epoch_wrong(process(finished("start"), open="a"), around())) == []
    assert list(epoch_wrong(process(finished("start").evolve(epoch=1), *other, epoch=1), around())) == [
        Finding(
            Rule.EPOCH_WRONG, "p", Repair.SET_EPOCH, "3 records of another epoch than 1, first the graph p: 0"
        )
    ]  # fmt: skip
    only_tasks = replace(process(finished("start"), *other), graph=None)
    assert [one.evidence for one in epoch_wrong(only_tasks, around())] == [
        "2 records of another epoch than 0, first the task p/a: 2"
    ]


def test_a_record_of_another_epoch_is_named_by_its_whole_id() -> None:
    foreign = queued("u/a").evolve(epoch=2)
    assert [one.evidence for one in epoch_wrong(process(finished("start"), foreign), around())] == [
        "1 records of another epoch than 0, first the task p/u/a: 2"
    ]
