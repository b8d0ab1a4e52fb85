"""A process that took too long is told once; that of a task stands with the other rules on decisions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recovery.records import Decision, DecisionState, Graph, Process, ProcessState
from recovery.rules import Repair, Rule, Snapshot, judge_process
from tests.rules.surroundings import LONG_AGO, NOW, SOON, TICK, around

HOUR = timedelta(hours=1)


def snapshot(**changes: Any) -> Snapshot:
    """A process of the type `add` that has run for an hour, and is well."""
    process = Process(id="p", type="add", args="", started_at=LONG_AGO, recovery_time=SOON).evolve(**changes)
    graph = Graph(id="p", not_finished={"start": LONG_AGO}, touched_at=NOW, recovery_time=SOON)
    decision = Decision(id="p/start", actor="add", state=DecisionState.WORKING, recovery_time=SOON)
    return Snapshot("p", process, graph, {"start": decision}, frozenset({"start"}))


@pytest.mark.parametrize(("breaks", "repair"), [(False, Repair.COUNT_OVERDUE), (True, Repair.BREAK_OVERDUE)])
def test_found(breaks: bool, repair: Repair) -> None:
    kind = {"process_timeout": 3600, "break_after_process_timeout": breaks}
    (found,) = judge_process(snapshot(), around(process_type=kind))
    assert (found.rule, found.record, found.repair) == (Rule.PROCESS_TIMEOUT, "p", repair)
    assert found.evidence == "started 11:00:00, over 3600 s ago"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, None),
        ({}, {"process_timeout": 3600.001}),
        ({"started_at": LONG_AGO + TICK}, {"process_timeout": 3600}),
        ({"started_at": None}, {"process_timeout": 1}),
        ({"timed_out_at": NOW}, {"process_timeout": 1, "break_after_process_timeout": True}),
        ({"type": "sum"}, {"process_timeout": 1}),
        ({"state": ProcessState.BROKEN, "recovery_time": None}, {"process_timeout": 1}),
    ],
    ids=["no limit", "not yet", "in a moment", "no start", "counted", "another type", "ended"],
)
def test_left_alone(changes: dict[str, Any], kind: dict[str, Any] | None) -> None:
    found = {finding.rule for finding in judge_process(snapshot(**changes), around(process_type=kind))}
    assert Rule.PROCESS_TIMEOUT not in found
