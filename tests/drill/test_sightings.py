"""Times, from what records told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.drill.canary_actor import DELAY, HOLD, WORKER_TIMEOUT, CanaryKind, Victim
from recovery.drill.drill_report import measured
from recovery.drill.sightings import Canary, Probe, ProbeOutcome, PromisedTime, Step
from recovery.records import Decision, DecisionState
from recovery.records import Outcome as Ended
from recovery.records.ids import START_TASK, child_task_id

T0 = datetime(2026, 1, 1, tzinfo=UTC)
STEP, WAIT, DROP = (child_task_id(START_TASK, 0, place) for place in range(3))
LAST = child_task_id(STEP, 0, 0)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def claimed(seconds: float, *, attempts: int = 1, queued: float = 0.0, lasts: float = WORKER_TIMEOUT) -> Decision:
    return Decision(
        id="P/T", actor="recovery.canary", state=DecisionState.WORKING, attempts=attempts, worker=f"w{attempts}#1",
        queued_at=at(queued), claimed_at=at(seconds), recovery_time=at(seconds + lasts),
    )  # fmt: skip


def ended(decision: Decision, seconds: float) -> Decision:
    outcome = Ended(pass_key="p", finished_at=at(seconds), value="{}")
    return decision.evolve(state=DecisionState.FINISHED, outcome=outcome, worker=None)


def canary(kind: CanaryKind, victim: Victim | None = None) -> Canary:
    return Canary("P", kind, victim, {}, net=30.0, started=T0)


def times(one: Canary) -> dict[tuple[str, str], float | None]:
    found = {(probe.step.value, probe.task): probe.seconds for probe in one.probes(WORKER_TIMEOUT)}
    return {key: seconds and round(seconds, 3) for key, seconds in found.items()}


def round_of(*, seen: bool = True) -> Canary:
    """One whose tasks were seen at each of their attempts, or only once all was over."""
    one = canary(CanaryKind.ROUND)
    one.note(START_TASK, ended(claimed(0.1), 0.2))
    one.note(STEP, ended(claimed(0.25), 0.3))
    one.note(LAST, ended(claimed(0.4), 0.5))
    one.note(WAIT, ended(claimed(0.2 + DELAY + 0.7, queued=1.8), 2.0))
    if seen:
        one.note(DROP, claimed(0.6))
        one.note(DROP, claimed(0.6).evolve(state=DecisionState.QUEUED, queued_at=at(0.6 + WORKER_TIMEOUT + 0.5)))
    one.note(DROP, ended(claimed(3.5, attempts=2, queued=0.6 + WORKER_TIMEOUT + 0.5), 3.6))
    return one


def test_a_round() -> None:
    assert times(round_of()) == {
        ("start", START_TASK): 0.1,
        ("step", STEP): 0.05,
        ("step", LAST): 0.1,
        ("step", DROP): 0.4,
        ("delay", WAIT): 0.7,
        ("lost_claim", DROP): 0.5,
    }


def test_what_was_not_seen_takes_no_less_time() -> None:
    """The claim that was dropped is in no record any more: it was not before the task was scheduled."""
    unseen = times(round_of(seen=False))
    assert unseen["lost_claim", DROP] == pytest.approx(0.9)
    assert ("step", DROP) not in unseen


@pytest.mark.parametrize("victim", Victim)
def test_a_kill(victim: Victim) -> None:
    one = canary(CanaryKind.KILL, victim)
    one.note(START_TASK, claimed(0.1, lasts=30))
    assert one.first_worker == "w1"
    one.note(START_TASK, ended(claimed(1.9, attempts=2, queued=0.1 + HOLD + 0.3), 2.0))
    step = Step.KILLED_SLOT if victim is Victim.SLOT else Step.KILLED_WORKER
    assert times(one) == {("start", START_TASK): 0.1, (step.value, START_TASK): 0.3}


@pytest.mark.parametrize(("lasts", "requeue_after"), [(30.4, 0.1), (WORKER_TIMEOUT, 0.5), (25.0, 0.5)])
def test_a_death_is_counted_from_when_the_attempt_had_its_net(lasts: float, requeue_after: float) -> None:
    """0.4 s after its claim, if that was seen; else, and where an operator has set another time-out, from the claim."""
    one = Canary("P", CanaryKind.KILL, Victim.SLOT, {}, net=30.0, started=T0)
    one.note(START_TASK, claimed(0.1, lasts=lasts))
    one.note(START_TASK, claimed(3.0, attempts=2, queued=0.1 + HOLD + 0.5))
    assert times(one)["killed_slot", START_TASK] == pytest.approx(requeue_after)


def test_the_time_out_that_an_operator_has_set_is_not_taken_for_the_net() -> None:
    one = Canary("P", CanaryKind.KILL, Victim.SLOT, {}, net=30.0, started=T0)
    one.note(START_TASK, claimed(0.1, lasts=60.0))
    one.note(START_TASK, claimed(3.0, attempts=2, queued=0.1 + HOLD + 0.5))
    (_, killed) = one.probes(60.0)
    assert killed.seconds == pytest.approx(0.5)


def test_what_never_came_has_no_time_and_what_it_kept_from_beginning_is_no_probe() -> None:
    assert times(canary(CanaryKind.ROUND)) == {("start", START_TASK): None}
    one = canary(CanaryKind.ROUND)
    one.note(START_TASK, ended(claimed(0.1), 0.2))
    assert times(one) == {
        ("start", START_TASK): 0.1,
        ("step", STEP): None,
        ("delay", WAIT): None,
        ("step", DROP): None,
    }
    one.note(DROP, claimed(0.6))
    assert times(one)["lost_claim", DROP] is None


def test_a_later_requeue_does_not_take_the_place_of_the_first() -> None:
    one = canary(CanaryKind.ROUND)
    one.note(START_TASK, ended(claimed(0.1), 0.2))
    one.note(DROP, claimed(0.6))
    one.note(DROP, claimed(3.2, attempts=2, queued=3.1))
    one.note(DROP, ended(claimed(6.2, attempts=3, queued=6.1), 6.3))
    assert times(one)["lost_claim", DROP] == pytest.approx(3.1 - 0.6 - WORKER_TIMEOUT)


@pytest.mark.parametrize(
    ("step", "seconds", "outcome"),
    [
        (Step.STEP, 1.0, "ok"),
        (Step.STEP, 1.001, "late"),
        (Step.STEP, None, "failed"),
        (Step.DELAY, -0.02, "ok"),
        (Step.DELAY, -0.2, "failed"),
    ],
)
def test_outcomes(step: Step, seconds: float | None, outcome: str) -> None:
    assert Probe(step, "P", "T", seconds).outcome(PromisedTime(1.0, "")).value == outcome


def test_the_worst_probe_is_what_came_of_a_step() -> None:
    promises = dict.fromkeys(Step, PromisedTime(1.0, "a moment"))
    probes = [Probe(Step.START, "P", "T", seconds) for seconds in (0.5, 2.0, None)]
    (start,) = measured(probes, promises)
    assert start.outcome is ProbeOutcome.FAILED
    found = start.as_dict()
    assert (found["probes"], found["late"], found["failed"]) == (3, 1, 1)
    assert (found["median"], found["longest"]) == (1.25, 2.0)


@given(
    claims=st.lists(st.floats(0, 100), min_size=2, max_size=4).map(sorted),
    seen=st.sets(st.integers(0, 3)),
)
@settings(deadline=None)
def test_whatever_is_missed_no_time_is_too_short(claims: list[float], seen: set[int]) -> None:
    """Each attempt of a kill is claimed half a second after it was queued; some of them nobody looked at."""
    truth, told = canary(CanaryKind.KILL, Victim.SLOT), canary(CanaryKind.KILL, Victim.SLOT)
    for place, seconds in enumerate(claims):
        noted = claimed(seconds + HOLD * place + 0.5, attempts=place + 1, queued=seconds + HOLD * place)
        truth.note(START_TASK, noted)
        if place in seen or place == len(claims) - 1:
            told.note(START_TASK, noted)
    for exact, other in zip(truth.probes(WORKER_TIMEOUT), told.probes(WORKER_TIMEOUT), strict=True):
        assert exact.seconds is not None and other.seconds is not None and other.seconds >= exact.seconds
