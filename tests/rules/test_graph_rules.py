"""Bounds of the rules on a process's graph; `test_processes` has each rule with its look-alike."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recovery.records import DecisionState
from recovery.rules import Repair, Rule, Snapshot
from recovery.rules.graph_rules import not_applied, record_missing
from tests.rules.surroundings import LONG_AGO, MARGIN, NOW, TICK, around
from tests.rules.test_process_rules import decision, finished, is_open, snapshot, without_tasks


def missing(found: Snapshot) -> list[tuple[Rule, str, Repair, str]]:
    return [(one.rule, one.record, one.repair, one.evidence) for one in record_missing(found, around())]


@pytest.mark.parametrize(("ago", "is_found"), [(MARGIN, False), (MARGIN + TICK, True)])
def test_who_finished_a_task_a_moment_ago_is_about_to_apply_it(ago: timedelta, is_found: bool) -> None:
    ended = finished("start", at=NOW - ago)
    assert bool(list(not_applied(snapshot([ended], {"not_finished": is_open("start")}), around()))) is is_found


def test_a_task_that_nobody_tells_of_breaks_the_process_unless_one_that_runs_again_may_have_scheduled_it() -> None:
    graph = {"not_finished": is_open("lost"), "finished": ("start",)}
    said = "open in the graph, and there is no Decision, and no decision that tells what it was"
    assert missing(snapshot([finished("start")], graph)) == [
        (Rule.DECISION_MISSING, "p/lost", Repair.BREAK, said)
    ]  # fmt: skip
    undecided = {**graph, "finished": ("start", "again")}
    assert missing(snapshot([finished("start"), decision("again", DecisionState.QUEUED)], undecided)) == []


def test_each_lost_record_is_looked_for_past_those_that_are_another_rules() -> None:
    start = finished("start", children=["child", "other"])
    graph = {"not_finished": is_open("child", "other"), "finished": ("start",)}
    found = without_tasks(snapshot([start, decision("other")], graph), "other")
    assert missing(found) == [
        (Rule.TASK_MISSING, "p/other", Repair.RESTORE, "open in the graph, and there is no Task; start scheduled it")
    ]  # fmt: skip


def test_a_start_task_whose_decision_is_lost_is_told_by_where_the_graph_has_it() -> None:
    nobody_tells = "and there is no Decision, and no decision that tells what it was"
    done = snapshot([finished("a")], {"finished": ("start", "a"), "touched_at": LONG_AGO}, tasks=["start"])
    assert missing(done) == [
        (Rule.DECISION_MISSING, "p/start", Repair.BREAK, f"finished in the graph, {nobody_tells}")
    ]  # fmt: skip
    lacked = snapshot([finished("a")], {"finished": ("a",), "touched_at": LONG_AGO}, tasks=["start"])
    assert missing(lacked) == [
        (Rule.DECISION_MISSING, "p/start", Repair.BREAK, f"not in the graph, {nobody_tells}")
    ]  # fmt: skip
