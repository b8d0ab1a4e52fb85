"""Which repairs are evidence of lost records, by what was broken."""

from __future__ import annotations

import pytest

from recovery.demo.demo_report import BY_FAILOVER, BY_NOTHING, unexplained
from recovery.demo.options import FAILOVERS, FaultKind
from recovery.rules import Rule

NO_FAILOVER = {kind.value: 3 for kind in FaultKind if kind not in FAILOVERS}


@pytest.mark.parametrize("rule", [Rule.FINISHED_UNDECIDED, Rule.DEAD_LINK, Rule.CYCLE, Rule.DEADLINE_MISSING])
def test_nothing_that_a_demo_breaks_explains_it(rule: Rule) -> None:
    every_fault = {kind.value: 3 for kind in FaultKind}
    assert [text for text in unexplained({rule.value: 10}, every_fault) if rule in text and "10" in text]


@pytest.mark.parametrize("rule", [Rule.CHILDREN_MISSING, Rule.TASK_MISSING, Rule.DECISION_MISSING, Rule.GRAPH_MISSING])
def test_a_failover_explains_it_and_no_other_fault(rule: Rule) -> None:
    assert len(list(unexplained({rule.value: 1}, {}))) == 1
    assert len(list(unexplained({rule.value: 1}, NO_FAILOVER))) == 1
    for kind in FAILOVERS:
        assert list(unexplained({rule.value: 1}, {kind.value: 1})) == []


def test_repairs_of_what_was_cut_off_are_no_evidence() -> None:
    others = {rule.value: 5 for rule in Rule if rule not in BY_FAILOVER | BY_NOTHING}
    assert {"WORKER_LOST", "MESSAGE_LOST", "DECISION_NOT_APPLIED", "READY_NOT_QUEUED"} <= set(others)
    assert list(unexplained(others, {})) == []
