"""TIME_IMPOSSIBLE: times that nobody can have written rightly, and those that may pass."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from recovery.limits import LONGEST, WAITS_FOR
from recovery.records import (
    Decision,
    DecisionState,
    Graph,
    Outcome,
    Process,
    ProcessState,
    Refused,
    RetryState,
    VersionRefusal,
)
from recovery.rules import Finding, Repair, Rule, Snapshot
from recovery.rules.times import CLOCKS_DIFFER, MESSAGE_TIMEOUTS, SLACK, time_impossible
from tests.rules.surroundings import LONG_AGO, MESSAGE_MARGIN, NOW, SOON, TICK, around

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
QUEUED, WORKING, DELAYED = DecisionState.QUEUED, DecisionState.WORKING, DecisionState.DELAYED
FINISHED = DecisionState.FINISHED
IDLE = 10 * 86_400.0
LONGEST_QUEUED = max(timedelta(seconds=WAITS_FOR), MESSAGE_TIMEOUTS * MESSAGE_MARGIN) * 1.2 + SLACK


def found(*decisions: Decision, graph: dict[str, Any] | None = None, **changes: Any) -> list[Finding]:
    """What is found of a process started an hour ago, with surroundings by `actor`."""
    actor = changes.pop("actor", None)
    healthy = {"started_at": LONG_AGO, "recovery_time": SOON, "state": ProcessState.RUNNING, "idle_timeout": IDLE}
    graph_of = {"touched_at": LONG_AGO, "recovery_time": SOON, "idle_timeout": IDLE}
    snapshot = Snapshot(
        process_id="p",
        process=Process(id="p", type="order", args="", **{**healthy, **changes}),
        graph=None if graph is None else Graph(id="p", **{**graph_of, **graph}),
        decisions={one.task_id: one for one in decisions},
        tasks=frozenset(),
    )
    return list(time_impossible(snapshot, around(actor=actor)))


def decision(state: DecisionState, **changes: Any) -> Decision:
    return Decision(id="p/t", actor="add", state=state, recovery_time=SOON).evolve(**changes)


def evidence(findings: list[Finding]) -> str:
    (finding,) = findings
    assert (finding.rule, finding.repair) == (Rule.TIME_IMPOSSIBLE, Repair.SET_TIME)
    return finding.evidence


def test_a_healthy_process_has_no_impossible_time() -> None:
    assert found(decision(QUEUED, queued_at=NOW), graph={"not_finished": {"t": NOW}}) == []


@pytest.mark.parametrize(
    ("started_at", "said"),
    [
        (None, "process: started at no time"),
        (NOW + CLOCKS_DIFFER, None),
        (NOW + CLOCKS_DIFFER + TICK, "process: started 0.2 hours from now"),
        (NOW + 3000 * DAY, "process: started 3,000 days from now"),
    ],
)
def test_when_a_process_started(started_at: datetime | None, said: str | None) -> None:
    findings = found(started_at=started_at)
    assert [(one.record, one.evidence, one.decision) for one in findings] == ([("p", said, None)] if said else [])


@pytest.mark.parametrize(
    ("touched_at", "said"),
    [
        (None, "graph: touched at no time"),
        (NOW + CLOCKS_DIFFER, None),
        (NOW + CLOCKS_DIFFER + TICK, "graph: touched 0.2 hours from now"),
    ],
)
def test_when_a_graph_was_touched(touched_at: datetime | None, said: str | None) -> None:
    findings = found(graph={"touched_at": touched_at})
    assert [(one.record, one.evidence, one.decision) for one in findings] == ([("p", said, None)] if said else [])


def late(longest: timedelta) -> list[tuple[timedelta, bool]]:
    """Deadlines at the bound and just past it."""
    return [(longest, False), (longest + TICK, True)]


@pytest.mark.parametrize(("ahead", "is_found"), late(timedelta(seconds=IDLE) * 1.2 + SLACK))
def test_a_deadline_is_at_most_a_fifth_past_the_idle_timeout_and_a_day(ahead: timedelta, is_found: bool) -> None:
    said = "its deadline is 13 days from now, and nobody sets one so far off"
    of_process, of_graph = found(recovery_time=NOW + ahead), found(graph={"recovery_time": NOW + ahead})
    assert [one.evidence for one in of_process] == ([f"process: {said}"] if is_found else [])
    assert [one.evidence for one in of_graph] == ([f"graph: {said}"] if is_found else [])


@pytest.mark.parametrize(("ahead", "is_found"), late(20 * DAY * 1.2 + SLACK))
def test_a_deadline_may_be_as_far_off_as_the_process_is_old(ahead: timedelta, is_found: bool) -> None:
    started = {"started_at": NOW - 20 * DAY}
    assert bool(found(recovery_time=NOW + ahead, **started)) == is_found
    touched = {"touched_at": NOW - HOUR, "recovery_time": NOW + ahead}
    assert bool(found(graph=touched, **started)) == is_found, "a graph is as old as its process"
    assert bool(found(graph={**touched, "touched_at": NOW - 20 * DAY})) == is_found, "or as its last change"


def test_a_deadline_that_is_missing_or_beyond_all_looks_is_another_rules() -> None:
    for deadline in (None, NOW + timedelta(seconds=LONGEST) + 2 * DAY):
        assert found(recovery_time=deadline, graph={"recovery_time": deadline}) == []


@pytest.mark.parametrize(("ahead", "is_found"), late(LONGEST_QUEUED))
def test_a_queued_task_is_looked_at_within_a_day_or_many_message_timeouts(ahead: timedelta, is_found: bool) -> None:
    findings = found(decision(QUEUED, recovery_time=NOW + ahead))
    assert bool(findings) == is_found
    if is_found:
        assert evidence(findings) == "its deadline is 2 days from now, and nobody sets one so far off"
        assert (findings[0].record, findings[0].decision) == ("p/t", decision(QUEUED, recovery_time=NOW + ahead))


@pytest.mark.parametrize(("ahead", "is_found"), late(4 * DAY * 1.2 + CLOCKS_DIFFER))
def test_a_task_that_is_worked_on_is_looked_at_after_its_worker_timeout(ahead: timedelta, is_found: bool) -> None:
    working = decision(WORKING, recovery_time=NOW + ahead)
    assert bool(found(working, actor={"worker_timeout": 4 * 86_400.0})) == is_found


@pytest.mark.parametrize(("ahead", "is_found"), late(MESSAGE_TIMEOUTS * MESSAGE_MARGIN * 1.2 + CLOCKS_DIFFER))
def test_a_short_worker_timeout_may_be_outlasted_by_message_timeouts(ahead: timedelta, is_found: bool) -> None:
    assert bool(found(decision(WORKING, recovery_time=NOW + ahead), actor={"worker_timeout": 1.0})) == is_found


@pytest.mark.parametrize("state", [QUEUED, WORKING])
def test_of_an_actor_with_a_pace_any_deadline_is_possible(state: DecisionState) -> None:
    assert found(decision(state, recovery_time=NOW + 300 * DAY), actor={"requeue_rate": 1.0}) == []


@pytest.mark.parametrize(
    ("fields", "late_by"),
    [
        ({"eta": NOW + DAY}, DAY),
        ({"queued_at": NOW, "delay": 86_400.0}, DAY),
        ({"queued_at": NOW}, timedelta()),
        ({"queued_at": NOW, "delay": -5.0}, timedelta()),
        ({"eta": NOW + 2 * DAY, "queued_at": NOW}, 2 * DAY),
        ({"eta": NOW, "queued_at": NOW + 2 * DAY}, 2 * DAY),
    ],
    ids=str,
)
def test_a_delayed_task_is_looked_at_when_it_is_due(fields: dict[str, Any], late_by: timedelta) -> None:
    due = NOW + late_by
    assert found(decision(DELAYED, recovery_time=due + CLOCKS_DIFFER, **fields)) == []
    starts = max(moment for moment in (fields.get("eta"), fields.get("queued_at")) if moment)
    assert evidence(found(decision(DELAYED, recovery_time=due + CLOCKS_DIFFER + TICK, **fields))) == (
        f"delayed until {starts:%Y-%m-%d}, and its deadline is 0.2 hours later"
    )


def test_a_delayed_task_without_an_eta_is_due() -> None:
    assert found(decision(DELAYED, recovery_time=NOW + CLOCKS_DIFFER)) == []
    assert evidence(found(decision(DELAYED, recovery_time=NOW + 300 * DAY))) == (
        "delayed without an eta, and its deadline is 300 days from now"
    )
    assert found(decision(DELAYED, recovery_time=None, eta=NOW)) == []


def test_no_retry_comes_after_its_last_moment() -> None:
    until = NOW + HOUR
    retry = RetryState(
        count=1, cycle=1, since=NOW, until=until, failed_at=NOW, attempt=1, pass_key="k", code=21003, reason="r",
        kind="E", message="m",
    )  # fmt: skip
    of_retry = {"retry": retry, "queued_at": NOW}
    last = until + CLOCKS_DIFFER
    assert found(decision(DELAYED, recovery_time=last, eta=last, **of_retry)) == []
    years = NOW + 3000 * DAY
    assert evidence(found(decision(DELAYED, recovery_time=years, eta=years, **of_retry))) == (
        f"to be retried in {years:%Y-%m-%d}, and not after {until:%Y-%m-%d}"
    )


def test_a_delay_that_no_date_can_hold_counts_as_the_longest() -> None:
    due = NOW + timedelta(seconds=LONGEST)
    assert found(decision(DELAYED, queued_at=NOW, delay=1e300, recovery_time=due)) == []


@pytest.mark.parametrize(
    ("finished_at", "said"),
    [
        (None, "finished at no time"),
        (NOW + CLOCKS_DIFFER, None),
        (NOW + CLOCKS_DIFFER + TICK, "finished 0.2 hours from now"),
    ],
)
def test_when_a_task_ended_matters_while_its_graph_does_not_know(
    finished_at: datetime | None, said: str | None
) -> None:
    ended = decision(FINISHED, outcome=Outcome(pass_key="k", value="1", finished_at=finished_at))
    findings = found(ended, graph={"not_finished": {"t": NOW}})
    assert [one.evidence for one in findings] == ([said] if said else [])
    assert found(ended, graph={"not_finished": {"other": NOW}, "finished": ("t",)}) == [], "nobody waits for it"
    assert found(ended) == [], "nor without a graph"


def test_what_waits_has_no_times_that_anybody_waits_for_and_the_next_is_judged_all_the_same() -> None:
    waiting = Decision(id="p/a", actor="add", state=DecisionState.WAITING, recovery_time=NOW + 300 * DAY)
    queued = decision(QUEUED, recovery_time=NOW + 300 * DAY)
    assert [one.record for one in found(waiting, queued)] == ["p/t"]
    assert found(decision(FINISHED), graph={"not_finished": {"t": NOW}}) == [], "damage, which has a rule of its own"


def test_a_refused_task_is_tried_again_soon() -> None:
    refused = Refused(count=1, attempts=0, pass_key="k", by=(VersionRefusal(version="1.0", since=NOW, why="no"),))
    of_refused = {"refused": refused, "queued_at": NOW}
    soon, years = NOW + timedelta(seconds=30), NOW + 3000 * DAY
    assert found(decision(DELAYED, recovery_time=soon, eta=soon, **of_refused)) == []
    assert evidence(found(decision(DELAYED, recovery_time=years, eta=years, **of_refused))) == (
        f"to be tried again in {years:%Y-%m-%d}, though only a worker's code has refused its call"
    )
    long_ago = NOW - 100 * DAY
    retry = RetryState(
        count=1, cycle=1, since=long_ago, until=long_ago, failed_at=long_ago, attempt=1, pass_key="k", code=21003,
        reason="r", kind="E", message="m",
    )  # fmt: skip
    assert found(decision(DELAYED, recovery_time=soon, eta=soon, retry=retry, **of_refused)) == []
    assert evidence(found(decision(DELAYED, recovery_time=years, eta=years, retry=retry, **of_refused))) == (
        f"to be retried in {years:%Y-%m-%d}, and not after {NOW:%Y-%m-%d}"
    )
    to_come = retry.evolve(until=NOW + DAY)
    last = to_come.until + CLOCKS_DIFFER
    assert found(decision(DELAYED, recovery_time=last, eta=last, retry=to_come, **of_refused)) == []
    for of_both in ({"retry": None}, {"retry": to_come}):  # without an eta, which another program removed
        assert found(decision(DELAYED, recovery_time=soon, **of_both, **of_refused)) == []
