"""INTERRUPTION_MISSING: what a broken process broke for is not listed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from recovery.records import Decision, DecisionState, ErrorInfo, Graph, Outcome, Process, ProcessState
from recovery.rules import Finding, Repair, Rule, Snapshot
from recovery.rules.broken_processes import interruption_missing, is_restarted
from tests.rules.surroundings import JUST_NOW, LONG_AGO, MARGIN, NOW, TICK, around

FAILED = Outcome(pass_key="k", error=ErrorInfo(kind="ValueError", message="no"))
DONE = Outcome(pass_key="k", value="1")
UNLISTED = "it failed, and no interruption is listed"
WHOLE = "the process is broken, and no interruption is listed"


def decision(task: str, outcome: Outcome | None = FAILED, restarts: int | None = None, **changes: Any) -> Decision:
    state = DecisionState.FINISHED if outcome is not None else DecisionState.QUEUED
    return Decision(id=f"p/{task}", actor="a", state=state, outcome=outcome, restarts=restarts).evolve(**changes)


def error(task: str | None) -> ErrorInfo:
    return ErrorInfo(kind="ValueError", message="no", task=task)


def found(
    *decisions: Decision,
    graph: Mapping[str, Any] | None = None,
    listed: Mapping[str, float] | None = {},
    as_of: datetime | None = None,
    **process: Any,
) -> list[Finding]:
    """What is found of a process that broke an hour ago, for the task `t` where nothing else is said."""
    broke = {"state": ProcessState.BROKEN, "ended_at": LONG_AGO, "error": error("t")}
    snapshot = Snapshot(
        process_id="p",
        process=Process(id="p", type="order", args="", **{**broke, **process}),
        graph=None if graph is None else Graph(id="p", **{"touched_at": LONG_AGO, **graph}),
        decisions={one.task_id: one for one in decisions},
        tasks=frozenset(),
        listed=listed,
    )
    return list(interruption_missing(snapshot, around(as_of=as_of)))


def told(findings: list[Finding]) -> dict[str, str]:
    """{record: evidence}"""
    return {finding.record: finding.evidence for finding in findings}


def test_a_failed_task_that_is_not_listed_is_found_with_its_decision() -> None:
    failed = decision("t")
    (finding,) = found(failed, graph={"failed": {"t": True}})
    assert finding == Finding(Rule.INTERRUPTION_MISSING, "p/t", Repair.LIST_AGAIN, UNLISTED, failed)


def test_a_failed_task_that_is_listed_is_left_alone() -> None:
    assert found(decision("t"), graph={"failed": {"t": True}}, listed={"t": 0}) == []
    assert found(decision("t", restarts=2), graph={"failed": {"t": True}}, listed={"t": 2}) == []


def test_listed_for_an_earlier_failure_alone_is_not_listed() -> None:
    findings = found(decision("t", restarts=2), graph={"failed": {"t": True}}, listed={"t": 1})
    assert told(findings) == {"p/t": f"{UNLISTED} for its last failure"}


def test_of_what_was_not_read_nothing_is_concluded() -> None:
    assert found(decision("t"), graph={"failed": {"t": True}}, listed=None) == []
    snapshot = Snapshot("p", None, None, {}, frozenset(), listed={})
    assert list(interruption_missing(snapshot, around())) == []


@pytest.mark.parametrize(
    ("touched_at", "ended_at", "as_of", "is_found"),
    [
        (NOW - MARGIN - TICK, NOW - MARGIN - TICK, None, True),
        (NOW - MARGIN, LONG_AGO, None, False),
        (LONG_AGO, NOW - MARGIN, None, False),
        (JUST_NOW, JUST_NOW, None, False),
        (LONG_AGO, None, None, True),
        (None, LONG_AGO, None, True),
        # Records were begun to be read long ago: what was written since may be in some of them alone.
        (NOW - MARGIN - TICK, LONG_AGO, NOW - 2 * MARGIN, False),
    ],
)
def test_who_broke_it_may_be_about_to_list_it(
    touched_at: datetime | None, ended_at: datetime | None, as_of: datetime | None, is_found: bool
) -> None:
    graph = {"failed": {"t": True}, "touched_at": touched_at}
    assert bool(found(decision("t"), graph=graph, ended_at=ended_at, as_of=as_of)) == is_found


def test_without_a_graph_the_decisions_tell_what_failed_and_the_process_when() -> None:
    decisions = (decision("t"), decision("ok", DONE), decision("queued", None))
    assert told(found(*decisions)) == {"p/t": UNLISTED}
    assert found(*decisions, ended_at=JUST_NOW) == []


def test_each_failed_task_is_to_be_listed() -> None:
    findings = found(decision("t"), decision("u"), graph={"failed": {"t": True, "u": True}}, listed={"u": 0})
    assert told(findings) == {"p/t": UNLISTED}
    findings = found(decision("t"), decision("u"), graph={"failed": {"t": True, "u": True}})
    assert told(findings) == {"p/t": UNLISTED, "p/u": UNLISTED}


def test_a_task_that_the_process_cannot_go_on_for_is_listed_without_having_failed() -> None:
    """Its decision is lost, or the graph has a task as failed that was decided otherwise."""
    for decisions in ([], [decision("t", DONE)], [decision("t", None)]):
        (finding,) = found(*decisions, graph={"failed": {"t": True}})
        assert (finding.record, finding.evidence, finding.decision) == ("p/t", WHOLE, None)
    # Listed again each time that the process breaks: by how often it, or the task, was set going again.
    assert found(graph={"failed": {"t": True}}, listed={"t": 0}) == []
    assert found(graph={"failed": {"t": True}}, listed={"t": 1}, reopened=1) == []
    assert told(found(graph={"failed": {"t": True}}, listed={"t": 0}, reopened=1)) == {
        "p/t": f"{WHOLE} for its last failure"
    }
    known = {"failed": {"t": True}, "restarted": {"t": 2}}
    assert found(decision("t", None, restarts=2), graph=known, listed={"t": 2}) == []
    assert len(found(decision("t", None, restarts=2), graph=known, listed={"t": 1})) == 1


def test_a_task_that_is_being_restarted_is_about_to_go_on() -> None:
    graph = {"failed": {"t": True}, "restarted": {"t": 1}}
    assert found(decision("t", None, restarts=2), graph=graph) == []
    assert len(found(decision("t", None, restarts=1), graph=graph)) == 1, "the graph knows of that restart"
    assert found(decision("t", None, restarts=1), graph={"failed": {"t": True}}) == []


def test_a_task_was_restarted_if_its_graph_does_not_know_of_its_last_life() -> None:
    again = decision("t", None, restarts=1)
    assert is_restarted(again, None) and is_restarted(again, Graph(id="p"))
    assert not is_restarted(again, Graph(id="p", restarted={"t": 1}))
    assert not is_restarted(decision("t", None), None)


def test_a_process_that_broke_as_a_whole_is_listed_under_its_start_task() -> None:
    findings = found(decision("start", DONE), graph={}, error=error(None))
    assert told(findings) == {"p/start": WHOLE}
    assert findings[0].decision is None
    assert found(decision("start", DONE), graph={}, error=error(None), listed={"start": 0}) == []
    again = found(decision("start", DONE), graph={}, error=error(None), listed={"start": 0}, reopened=1)
    assert told(again) == {"p/start": f"{WHOLE} for its last failure"}
    both = found(decision("t"), graph={"failed": {"t": True}}, error=error(None))
    assert told(both) == {"p/t": UNLISTED, "p/start": WHOLE}


@pytest.mark.parametrize(
    ("task", "is_listed"),
    [
        (None, True),
        (decision("t", DONE), True),
        (decision("t", None), True),
        (decision("t", None, restarts=1), False),
        (decision("t", DONE, restarts=1, recovery_time=NOW), False),
        (decision("t", DONE, restarts=1), True),
    ],
    ids=["lost", "ended well", "never restarted", "runs again", "ended again, to be applied", "ended again"],
)
def test_a_process_with_nothing_failed_is_listed_for_its_error_unless_that_task_goes_on(
    task: Decision | None, is_listed: bool
) -> None:
    findings = found(*([task] if task is not None else []), graph={})
    assert told(findings) == ({"p/t": WHOLE} if is_listed else {})


def test_a_broken_process_without_an_error_is_listed_under_its_start_task() -> None:
    assert told(found(decision("start", None, restarts=1), graph={}, error=None)) == {"p/start": WHOLE}
    assert told(found(decision("t"), graph={"failed": {"t": True}}, error=None)) == {"p/t": UNLISTED}
