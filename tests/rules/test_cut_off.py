"""Operators' work that was cut off (abort, redo, removal, marker), and what findings of whole processes bring along."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recovery.errors import DamagedRecord
from recovery.limits import LONGEST
from recovery.records import Decision, DecisionState, ErrorInfo, ProcessState
from recovery.rules import Finding, Repair, Rule, Snapshot, judge_process
from recovery.rules.graph_rules import cycle, dead_link
from recovery.rules.process_rules import of_aborted
from recovery.rules.task_rules import judge_decision
from tests.rules.surroundings import LONG_AGO, NOW, SOON, around
from tests.rules.test_process_rules import decision, finished, is_open, snapshot, without_tasks

ABORTED = {"state": ProcessState.ABORTED, "recovery_time": None, "error": ErrorInfo(kind="Aborted", message="no")}
BROKEN = {"state": ProcessState.BROKEN, "recovery_time": None, "error": ErrorInfo(kind="E", message="no")}
YEARS = NOW + timedelta(seconds=LONGEST) + timedelta(days=366)


def judged(found: Snapshot) -> list[tuple[Rule, str, Repair, str]]:
    return [(one.rule, one.record, one.repair, one.evidence) for one in judge_process(found, around())]


def test_an_aborted_process_is_at_rest_once_its_graph_is() -> None:
    assert judged(snapshot([finished("start")], {"recovery_time": None, "aborted": True}, **ABORTED)) == []
    goes_on = judged(snapshot([finished("start")], {"recovery_time": None}, **ABORTED))
    assert goes_on == [(Rule.ABORT_CUT_OFF, "p", Repair.FINISH_ABORT, "aborted, and its graph goes on")]
    assert judged(snapshot([finished("start")], None, **ABORTED)) == []


@pytest.mark.parametrize(
    ("decisions", "graph", "said"),
    [
        ([finished("start")], {"recovery_time": SOON}, "aborted, and its graph is live"),
        (
            [finished("start"), decision("a", DecisionState.QUEUED), decision("b")],
            {"recovery_time": None},
            "aborted, and 2 tasks have not ended, first a: queued",
        ),
        ([decision("a", DecisionState.WORKING)], None, "aborted, and 1 tasks have not ended, first a: working"),
        ([decision("a")], {"recovery_time": SOON}, "aborted, and its graph is live"),
    ],
)
def test_an_abort_that_was_cut_off_is_finished(
    decisions: list[Decision], graph: dict[str, Any] | None, said: str
) -> None:
    assert judged(snapshot(decisions, graph, **ABORTED)) == [
        (Rule.ABORT_CUT_OFF, "p", Repair.FINISH_ABORT, said)
    ]  # fmt: skip


def test_a_live_task_of_an_aborted_process_tells_of_it() -> None:
    said = "aborted, and a task of it is queued: t"
    assert of_aborted(decision("t", DecisionState.QUEUED)) == Finding(
        Rule.ABORT_CUT_OFF, "p", Repair.FINISH_ABORT, said
    )


def test_damage_of_an_aborted_process_is_told_before_its_abort_is_finished() -> None:
    damaged = replace(snapshot([decision("a")], **ABORTED), damaged=(DamagedRecord("p/b", "no date"),))
    assert [rule for rule, *_ in judged(damaged)] == [Rule.RECORD_DAMAGED]


def test_a_redo_that_was_cut_off_is_carried_out() -> None:
    begun = snapshot([decision("start")], epoch=4, redo=("a", "b", "c", "d"))
    assert judged(begun) == [
        (Rule.REDO_CUT_OFF, "p", Repair.FINISH_REDO, "epoch 4 is to begin again from a, b, c")
    ]  # fmt: skip
    ended = snapshot([finished("start")], {"finished": ("start",), "recovery_time": None}, redo=("a",), **BROKEN)
    assert Rule.REDO_CUT_OFF not in [rule for rule, *_ in judged(ended)]


def test_a_redo_whose_tasks_are_no_longer_named_is_carried_out_by_its_order() -> None:
    begun = snapshot([decision("start")], epoch=4, order="an order")
    (found,) = judged(begun)
    assert found == (
        Rule.REDO_CUT_OFF, "p", Repair.FINISH_REDO, "epoch 4 is to begin again from the tasks of its order"
    )  # fmt: skip
    assert Rule.REDO_CUT_OFF not in [rule for rule, *_ in judged(replace(begun, ordered=False))]


def test_damage_in_the_way_of_a_redo_is_told_first_but_for_a_graph_that_is_made_anew() -> None:
    begun = snapshot([finished("start")], redo=("a",))
    spoilt = replace(begun, graph=None, damaged=(DamagedRecord("p", "no list", ("finished",), "Graph"),))
    assert [rule for rule, *_ in judged(spoilt)] == [Rule.REDO_CUT_OFF]
    in_the_way = replace(begun, damaged=(DamagedRecord("p/b", "no date", ("state",), "Decision"),))
    assert [rule for rule, *_ in judged(in_the_way)] == [Rule.RECORD_DAMAGED, Rule.REDO_CUT_OFF]


@pytest.mark.parametrize("state", ProcessState)
def test_a_removal_that_was_cut_off_is_finished_whatever_else_there_is(state: ProcessState) -> None:
    found = snapshot([decision("a")], removing=True, redo=("a",), state=state)
    assert judged(found) == [
        (Rule.REMOVAL_CUT_OFF, "p", Repair.FINISH_REMOVAL, f"{state}, and being removed")
    ]  # fmt: skip


def test_a_marker_that_is_due_is_written() -> None:
    broken = snapshot(marker_due=True, **BROKEN)
    said = "it broke, and whoever was to write its marker was cut off"
    assert (Rule.MARKER_MISSING, "p", Repair.WRITE_MARKER, said) in judged(broken)
    for healthy in (snapshot(**BROKEN), snapshot(marker_due=True)):
        assert Rule.MARKER_MISSING not in [rule for rule, *_ in judged(healthy)]


def test_a_deadline_years_ahead_is_told_with_its_year() -> None:
    year = f"with a recoveryTime in the year {YEARS.year}"
    assert (Rule.DEADLINE_MISSING, "p", Repair.STAMP, f"running {year}") in judged(snapshot(recovery_time=YEARS))
    graph = {"not_finished": is_open("a"), "recovery_time": YEARS}
    assert (Rule.DEADLINE_MISSING, "p", Repair.STAMP, f"open graph {year}") in judged(snapshot([decision("a")], graph))
    queued = decision("a", DecisionState.QUEUED, recovery_time=YEARS)
    assert judge_decision(queued, around()) == Finding(
        Rule.DEADLINE_MISSING, "p/a", Repair.STAMP, f"queued {year}", queued
    )
    lacking = decision("a", DecisionState.QUEUED, recovery_time=None)
    assert judge_decision(lacking, around()) == Finding(
        Rule.DEADLINE_MISSING, "p/a", Repair.STAMP, "queued without recoveryTime", lacking
    )


def test_nothing_is_applied_to_a_graph_that_is_about_to_be_made_anew() -> None:
    unapplied = finished("b").evolve(recovery_time=LONG_AGO)
    key = "c" * 16
    lost = decision(key, DecisionState.QUEUED, queued_at=None).evolve(id=f"{0:032x}/{key}")
    records = [finished("start", children=["a", "b", key]), decision("a"), unapplied, lost]
    contradicted = snapshot(records, {"not_finished": is_open("b", key), "finished": ("start",)})
    assert [(rule, record) for rule, record, *_ in judged(contradicted)] == [
        (Rule.GRAPH_CONTRADICTED, "p"),
        (Rule.MESSAGE_LOST, lost.id),
    ]


def brought(found: Snapshot, rule: Rule) -> Decision | None:
    """The decision that the one finding of this rule has."""
    (finding,) = (one for one in judge_process(found, around()) if one.rule is rule)
    return finding.decision


def test_findings_bring_the_decision_that_their_repair_takes() -> None:
    start = finished("start", children=["a"])
    open_start = snapshot([start], {"not_finished": is_open("start")})
    assert brought(open_start, Rule.DECISION_NOT_APPLIED) == start
    applied = {"finished": ("start",)}
    assert brought(snapshot([start], applied), Rule.CHILDREN_MISSING) == start
    undecided = decision("start", DecisionState.QUEUED)
    assert brought(snapshot([undecided], applied), Rule.FINISHED_UNDECIDED) == undecided
    ready = decision("a")
    queued = snapshot([start, ready], {**applied, "not_finished": is_open("a")})
    assert brought(queued, Rule.READY_NOT_QUEUED) == ready
    without_task = without_tasks(queued, "a")
    assert brought(without_task, Rule.TASK_MISSING) == start, "the parent has all that it takes"


def test_children_of_each_applied_task_are_looked_at() -> None:
    leaf, parent = finished("leaf"), finished("parent", children=["child"])
    found = snapshot([leaf, parent, finished("start")], {"finished": ("start", "leaf", "parent")})
    assert (Rule.CHILDREN_MISSING, "p/parent") in [(rule, record) for rule, record, *_ in judged(found)]


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "waits for d0 (unknown)"),
        (3, "waits for d0 (unknown), d1 (unknown), d2 (unknown)"),
        (4, "waits for d0 (unknown), d1 (unknown), d2 (unknown) and others"),
        (5, "waits for d0 (unknown), d1 (unknown), d2 (unknown) and others"),
    ],
)
def test_of_many_dead_links_the_first_three_are_named(count: int, said: str) -> None:
    links = {"a": {f"d{number}": True for number in range(count)}}
    (finding,) = dead_link(snapshot((), {"not_finished": is_open("a"), "links": links}), around())
    assert finding.evidence == said


def test_of_a_long_circle_the_first_five_are_named() -> None:
    names = [f"t{number}" for number in range(8)]
    links = {name: {names[(place + 1) % 8]: True} for place, name in enumerate(names)}
    (finding,) = cycle(snapshot((), {"not_finished": is_open(*names), "links": links}), around())
    assert finding.evidence == "t0 waits for t1 waits for t2 waits for t3 waits for t4"
