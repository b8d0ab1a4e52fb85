"""RECORD_DAMAGED: what is done about a record that can't be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.errors import DamagedRecord
from recovery.records import Child, Decision, DecisionState, Graph, Outcome, Process, ProcessState, Task
from recovery.rules import Repair, Rule, Snapshot
from recovery.rules.damaged_records import DROPPABLE, droppable, not_judged, record_damaged, state_shown

HOUR = timedelta(hours=1)
RUNNING, BROKEN = ProcessState.RUNNING, ProcessState.BROKEN
AT_REST = [ProcessState.FINISHED, ProcessState.ABORTED]


def damaged(kind: type[Any], record: str, *fields: str) -> DamagedRecord:
    return DamagedRecord(record, "no date", fields, kind.__name__)


def repairs(*damage: DamagedRecord, state: ProcessState | None = RUNNING, **records: Any) -> list[Repair]:
    """What is to be done in a process of this state, or of none that can be read."""
    process = None if state is None else Process(id="p", type="order", args="", state=state)
    decisions = {one.task_id: one for one in records.pop("decisions", ())}
    graph = records.pop("graph", None)
    snapshot = Snapshot("p", process, graph, decisions, frozenset(), damage)
    findings = list(record_damaged(snapshot))
    assert [(one.rule, one.record, one.evidence) for one in findings] == [
        (Rule.RECORD_DAMAGED, one.record, str(one)) for one in damage
    ]
    return [one.repair for one in findings]


PARENT = Decision(
    id="p/start",
    actor="a",
    state=DecisionState.FINISHED,
    outcome=Outcome(pass_key="k", value="1"),
    children=(Child(id="t", actor="a", args=""),),
)


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind in DROPPABLE for field in sorted(DROPPABLE[kind])])
@pytest.mark.parametrize("state", [RUNNING, *AT_REST, None])
def test_what_a_record_can_do_without_is_dropped(kind: str, field: str, state: ProcessState | None) -> None:
    damage = DamagedRecord("p/t", "no date", (field,), kind)
    assert droppable(damage) and repairs(damage, state=state) == [Repair.MEND]


@pytest.mark.parametrize(
    "damage",
    [
        damaged(Decision, "p/t"),
        damaged(Decision, "p/t", "worker", "outcome"),
        damaged(Decision, "p/t", "state", "pass"),
        damaged(Process, "p", "args"),
        damaged(Task, "p/t", "worker"),
        damaged(Graph, "p", "recoveryTime"),
    ],
    ids=str,
)
def test_what_would_be_lost_is_not_dropped(damage: DamagedRecord) -> None:
    assert not droppable(damage)
    assert repairs(damage) == [Repair.REPORT]


@pytest.mark.parametrize("state", [RUNNING, BROKEN])
def test_a_task_whose_outcome_is_spoilt_runs_again_while_nothing_came_of_it(state: ProcessState) -> None:
    damage = damaged(Decision, "p/t", "outcome")
    assert repairs(damage, state=state) == [Repair.PUT_BACK]
    assert repairs(damage, state=state, graph=Graph(id="p", finished=("start",))) == [Repair.PUT_BACK]
    assert repairs(damage, state=state, graph=Graph(id="p", finished=("start", "t"))) == [Repair.REPORT]
    assert repairs(damaged(Decision, "p/t", "children"), state=state) == [Repair.REPORT]
    assert repairs(damaged(Decision, "p/t", "outcome", "children"), state=state) == [Repair.REPORT]


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("others", "state"),
    [
        ({}, DecisionState.WAITING),
        ({"eta": NOW + HOUR}, DecisionState.WAITING),
        ({"pass": "k"}, DecisionState.QUEUED),
        ({"pass": "k", "eta": NOW - HOUR}, DecisionState.QUEUED),
        ({"pass": "k", "eta": NOW + HOUR}, DecisionState.DELAYED),
        ({"pass": "k", "worker": "w#1", "eta": NOW + HOUR}, DecisionState.WORKING),
        ({"pass": "k", "worker": "w#1", "outcome": {"pass": "k"}}, DecisionState.FINISHED),
    ],
    ids=str,
)
def test_the_state_of_a_task_shows_in_its_other_fields(others: dict[str, Any], state: DecisionState) -> None:
    assert state_shown(others, NOW) is state


def test_a_graph_is_made_again_from_decisions_that_are_all_intact() -> None:
    graph = damaged(Graph, "p", "finished")
    assert repairs(graph, decisions=[PARENT]) == [Repair.REPLACE_GRAPH]
    assert repairs(graph) == [Repair.REPORT], "there is nothing to make it from"
    other = damaged(Decision, "p/u", "children")
    assert repairs(graph, other, decisions=[PARENT]) == [Repair.REPORT, Repair.REPORT]


def test_a_task_is_made_again_from_the_decision_that_scheduled_it() -> None:
    assert repairs(damaged(Task, "p/t", "args"), decisions=[PARENT]) == [Repair.RESTORE_TASK]
    assert repairs(damaged(Task, "p/u", "args"), decisions=[PARENT]) == [Repair.REPORT]
    assert repairs(damaged(Task, "p/start", "args"), decisions=[PARENT]) == [Repair.REPORT]


def test_a_task_id_is_all_that_follows_the_first_slash_of_a_record_id() -> None:
    """Another program may write any id. Task `u/t` must not be taken for task `t`."""
    assert repairs(damaged(Task, "p/u/t", "args"), decisions=[PARENT]) == [Repair.REPORT]
    graph = Graph(id="p", finished=("start", "t"))
    assert repairs(damaged(Decision, "p/u/t", "outcome"), graph=graph) == [Repair.PUT_BACK]


@pytest.mark.parametrize("state", [*AT_REST, None])
@pytest.mark.parametrize(
    "damage", [damaged(Decision, "p/t", "outcome"), damaged(Graph, "p", "finished"), damaged(Task, "p/t", "args")]
)
def test_of_a_process_that_does_not_go_on_damage_is_reported_alone(
    damage: DamagedRecord, state: ProcessState | None
) -> None:
    assert repairs(damage, state=state, decisions=[PARENT]) == [Repair.REPORT]


def test_a_process_that_no_rule_can_judge_is_reported_with_its_error() -> None:
    finding = not_judged("p", TypeError("'<' not supported"))
    assert (finding.rule, finding.record, finding.repair) == (Rule.RECORD_DAMAGED, "p", Repair.REPORT)
    assert finding.evidence == "no rule can judge it: TypeError: '<' not supported"
