"""Each rule on a single decision: the finding with its evidence, and a healthy look-alike left alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.records import Decision, DecisionState, LostAttempt, Outcome
from recovery.rules import Repair, Rule, Surroundings, judge_decision
from tests.examples import examples
from tests.rules.surroundings import (
    CLAIM_MARGIN,
    ID,
    JUST_NOW,
    LONG_AGO,
    MESSAGE_MARGIN,
    NOW,
    POLLED_TIMEOUT,
    SOON,
    TICK,
    around,
    decision,
)

WAITING, DELAYED, QUEUED = DecisionState.WAITING, DecisionState.DELAYED, DecisionState.QUEUED
WORKING, FINISHED = DecisionState.WORKING, DecisionState.FINISHED
LOST = around(lost_workers=frozenset({"w1"}))
LOST_CHILD = around(lost_workers=frozenset({"w1#7"}))

STRANGE_IDS = ["", "p/t", f"{'0' * 32}/Start", f"{'0' * 32}", f"{ID}\n"]

FOUND: list[tuple[str, Decision, Surroundings, Rule, Repair, str]] = [
    (
        "deadline past",
        decision(WORKING, worker="w1#7", recovery_time=LONG_AGO), around(),
        Rule.WORK_TIMEOUT, Repair.REQUEUE, "working for w1#7, deadline 11:00:00.000000 past",
    ),
    (
        "deadline this very moment",
        decision(WORKING, worker="w1#7", recovery_time=NOW), around(),
        Rule.WORK_TIMEOUT, Repair.REQUEUE, "working for w1#7, deadline 12:00:00.000000 past",
    ),
    (
        "worker gone",
        decision(WORKING, worker="w1#7"), LOST,
        Rule.WORKER_LOST, Repair.REQUEUE, "working for w1#7, which is gone",
    ),
    (
        "pool child gone",
        decision(WORKING, worker="w1#7"), LOST_CHILD,
        Rule.WORKER_LOST, Repair.REQUEUE, "working for w1#7, which is gone",
    ),
    (
        "worker gone and deadline past",
        decision(WORKING, worker="w1#7", recovery_time=LONG_AGO), LOST,
        Rule.WORKER_LOST, Repair.REQUEUE, "working for w1#7, which is gone",
    ),
    (
        "its time has come",
        decision(DELAYED, recovery_time=JUST_NOW), around(),
        Rule.DUE, Repair.ENQUEUE_DUE, "delayed, eta past",
    ),
    *(
        (
            f"{state} without a deadline",
            decision(state, recovery_time=None, queued_at=NOW), around(),
            Rule.DEADLINE_MISSING, Repair.STAMP, f"{state} without recoveryTime",
        )
        for state in (DELAYED, QUEUED, WORKING)
    ),
    (
        "finished, deadline past",
        decision(FINISHED, recovery_time=LONG_AGO), around(),
        Rule.DECISION_NOT_APPLIED, Repair.APPLY, "finished, not known to be applied",
    ),
    (
        "finished by a worker that is gone",
        decision(FINISHED, worker="w1#7"), LOST,
        Rule.DECISION_NOT_APPLIED, Repair.APPLY, "finished, not known to be applied",
    ),
    (
        "queued without a time",
        decision(QUEUED), around(),
        Rule.MESSAGE_LOST, Repair.REQUEUE_MESSAGE, "queued without a time: never pushed",
    ),
    (
        "a younger message was taken",
        decision(QUEUED, queued_at=LONG_AGO), around(queue={"taken_queued_at": NOW}),
        Rule.MESSAGE_LOST, Repair.REQUEUE_MESSAGE, "queued 11:00:00, a message of 12:00:00 was taken",
    ),
    (
        "Redis lost its data",
        decision(QUEUED, queued_at=NOW), around(queue={"lost_before": NOW}, depths={"add": 9}),
        Rule.MESSAGE_LOST, Repair.REQUEUE_MESSAGE, "queued 12:00:00, and Redis had lost its data at 12:00:00",
    ),
    (
        "Redis lost its data before it was queued",
        decision(QUEUED, queued_at=LONG_AGO, recovery_time=JUST_NOW),
        around(queue={"polled_at": NOW, "lost_before": LONG_AGO - TICK}, depths={"add": 9}),
        Rule.ACTORS_LAG, Repair.WAIT, "queued 11:00:00, not yet taken",
    ),
    (
        "Redis lost its data by a clock that was set back since",
        decision(QUEUED, queued_at=LONG_AGO, recovery_time=JUST_NOW),
        around(queue={"polled_at": NOW, "lost_before": SOON}, depths={"add": 9}),
        Rule.ACTORS_LAG, Repair.WAIT, "queued 11:00:00, not yet taken",
    ),
    (
        "its queue is empty",
        decision(QUEUED, queued_at=LONG_AGO), around(queue={"polled_at": NOW}, depths={"add": 0}),
        Rule.MESSAGE_LOST, Repair.REQUEUE_MESSAGE, "queued 11:00:00, and its queue was polled and empty at 11:59:58",
    ),
    (
        "its queue was empty, and is no longer",
        decision(QUEUED, queued_at=LONG_AGO),
        around(queue={"polled_at": NOW, "found_empty_at": NOW}, depths={"add": 9}),
        Rule.MESSAGE_LOST, Repair.REQUEUE_MESSAGE, "queued 11:00:00, and its queue was polled and empty at 12:00:00",
    ),
    (
        "its queue was seen empty so long ago that what was taken then is claimed",
        decision(QUEUED, queued_at=LONG_AGO),
        around(queue={"polled_at": NOW, "seen_empty_at": NOW - CLAIM_MARGIN}, depths={"add": 9}, looks_again=True),
        Rule.MESSAGE_LOST, Repair.REQUEUE_MESSAGE, "queued 11:00:00, and its queue was polled and empty at 11:59:59",
    ),
    (
        "its queue was found empty long ago, and seen so just now",
        decision(QUEUED, queued_at=LONG_AGO),
        around(
            queue={"polled_at": NOW, "found_empty_at": JUST_NOW - MESSAGE_MARGIN, "seen_empty_at": JUST_NOW},
            depths={"add": 0}, looks_again=True,
        ),
        Rule.MESSAGE_LOST, Repair.REQUEUE_MESSAGE, "queued 11:00:00, and its queue was polled and empty at 11:59:57",
    ),
    (
        "its queue was seen empty just now, and is no longer",
        decision(QUEUED, queued_at=LONG_AGO, recovery_time=JUST_NOW),
        around(queue={"polled_at": NOW, "seen_empty_at": JUST_NOW}, depths={"add": 9}, looks_again=True),
        Rule.ACTORS_LAG, Repair.WAIT, "queued 11:00:00, not yet taken",
    ),
    (
        "its queue was empty when its message may have been on its way",
        decision(QUEUED, queued_at=LONG_AGO, recovery_time=JUST_NOW),
        around(queue={"polled_at": NOW, "found_empty_at": LONG_AGO + MESSAGE_MARGIN}, depths={"add": 9}),
        Rule.ACTORS_LAG, Repair.WAIT, "queued 11:00:00, not yet taken",
    ),
    (
        "its queue was found empty by a clock that was set back since",
        decision(QUEUED, queued_at=LONG_AGO, recovery_time=JUST_NOW),
        around(queue={"polled_at": NOW, "found_empty_at": SOON}, depths={"add": 9}),
        Rule.ACTORS_LAG, Repair.WAIT, "queued 11:00:00, not yet taken",
    ),
    (
        "a message was taken by a clock that was set back since",
        decision(QUEUED, queued_at=LONG_AGO, recovery_time=JUST_NOW),
        around(queue={"polled_at": NOW, "taken_queued_at": SOON}, depths={"add": 9}),
        Rule.ACTORS_LAG, Repair.WAIT, "queued 11:00:00, not yet taken",
    ),
    (
        "not yet taken",
        decision(QUEUED, queued_at=LONG_AGO, recovery_time=JUST_NOW),
        around(queue={"polled_at": NOW}, depths={"add": 9}),
        Rule.ACTORS_LAG, Repair.WAIT, "queued 11:00:00, not yet taken",
    ),
    (
        "nobody polls",
        decision(QUEUED, queued_at=LONG_AGO, recovery_time=JUST_NOW), around(queues={"sum": LONG_AGO}),
        Rule.SERVERS_WERE_DOWN, Repair.WAIT, "queued 11:00:00, not yet taken",
    ),
    (
        "nobody polls this one",
        decision(QUEUED, queued_at=LONG_AGO, recovery_time=JUST_NOW), around(queues={"add": LONG_AGO, "sum": NOW}),
        Rule.NO_ACTORS, Repair.WAIT, "queued 11:00:00, not yet taken",
    ),
    (
        "blocked, and all would say that the message is lost",
        decision(QUEUED, queued_at=LONG_AGO, recovery_time=JUST_NOW),
        around(
            blocked=frozenset({"add"}),
            queue={"taken_queued_at": NOW, "polled_at": NOW, "found_empty_at": NOW}, depths={"add": 0},
        ),
        Rule.NO_ACTORS, Repair.WAIT, "queued, its actor is blocked",
    ),
    (
        "queued for too long",
        decision(QUEUED, enqueued_at=LONG_AGO, queued_at=NOW), around(actor={"task_timeout": 3600}),
        Rule.TASK_TIMEOUT, Repair.END_OVERDUE, "queued, first queued 11:00:00, over 3600 s ago",
    ),
    (
        "worked on for too long, and that is forced",
        decision(WORKING, enqueued_at=LONG_AGO, worker="w1#7"),
        around(actor={"task_timeout": 60, "force_finish_after_task_timeout": True}),
        Rule.TASK_TIMEOUT, Repair.END_OVERDUE, "working, first queued 11:00:00, over 60 s ago",
    ),
    (
        "worked on for too long, and overdue",
        decision(WORKING, enqueued_at=LONG_AGO, worker="w1#7", recovery_time=NOW), around(actor={"task_timeout": 60}),
        Rule.TASK_TIMEOUT, Repair.END_OVERDUE, "working, first queued 11:00:00, over 60 s ago",
    ),
]  # fmt: skip

HEALTHY: list[tuple[str, Decision, Surroundings]] = [
    ("working", decision(WORKING, worker="w1#7"), around()),
    ("working for another worker", decision(WORKING, worker="w2#7"), LOST),
    ("working for a worker of a longer name", decision(WORKING, worker="w11#7"), LOST),
    ("working for another child", decision(WORKING, worker="w1#77"), LOST_CHILD),
    ("working, deadline in a moment", decision(WORKING, worker="w1#7", recovery_time=NOW + TICK), around()),
    ("worked on for long, and that may be", decision(WORKING, enqueued_at=LONG_AGO), around()),
    ("worked on for too long, not overdue", decision(WORKING, enqueued_at=LONG_AGO), around(actor={"task_timeout": 1})),
    (
        "its time is over in a moment",
        decision(QUEUED, enqueued_at=LONG_AGO + TICK, queued_at=NOW), around(actor={"task_timeout": 3600}),
    ),
    (
        "blocked",
        decision(QUEUED, queued_at=LONG_AGO), around(blocked=frozenset({"add"}), queue={"taken_queued_at": NOW}),
    ),
    ("blocked, never pushed", decision(QUEUED), around(blocked=frozenset({"add"}))),
    ("delayed", decision(DELAYED), around()),
    ("waiting", decision(WAITING, recovery_time=None), around()),
    ("waiting with an old deadline", decision(WAITING, recovery_time=LONG_AGO), around()),
    ("finished, being applied", decision(FINISHED), around()),
    ("finished by a worker that lives", decision(FINISHED, worker="w2#7"), LOST),
    ("finished, at rest", decision(FINISHED, recovery_time=None), LOST),
    ("queued just now", decision(QUEUED, queued_at=JUST_NOW), around(queue={"polled_at": NOW}, depths={"add": 0})),
    (
        "in hand, for all that is known by who looks again",
        decision(QUEUED, queued_at=LONG_AGO, recovery_time=JUST_NOW),
        around(
            queue={"polled_at": NOW, "seen_empty_at": NOW - CLAIM_MARGIN + TICK}, depths={"add": 0}, looks_again=True
        ),
    ),
    (
        "the same, as who looked first has it",
        decision(QUEUED, queued_at=LONG_AGO, recovery_time=JUST_NOW),
        around(queue={"polled_at": NOW}, depths={"add": 0}, looks_again=True),
    ),
    ("queued, in a long line", decision(QUEUED, queued_at=LONG_AGO), around(queue={"polled_at": NOW})),
    ("queued, nobody polls yet", decision(QUEUED, queued_at=LONG_AGO), around()),
    (
        "a message hardly younger was taken",
        decision(QUEUED, queued_at=LONG_AGO), around(queue={"taken_queued_at": LONG_AGO + MESSAGE_MARGIN}),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("judged", "around", "rule", "repair", "evidence"), [pytest.param(*case, id=what) for what, *case in FOUND]
)
def test_found(judged: Decision, around: Surroundings, rule: Rule, repair: Repair, evidence: str) -> None:
    found = judge_decision(judged, around)
    assert found is not None
    assert (found.rule, found.repair, found.evidence) == (rule, repair, evidence)
    assert (found.record, found.process_id, found.decision) == (ID, ID.partition("/")[0], judged)


@pytest.mark.parametrize(("judged", "around"), [pytest.param(*case, id=what) for what, *case in HEALTHY])
def test_left_alone(judged: Decision, around: Surroundings) -> None:
    assert judge_decision(judged, around) is None


POLLED: dict[str, datetime | None] = {
    "never": None,
    "long ago": NOW - POLLED_TIMEOUT,
    "before it was queued": LONG_AGO,
    "now": NOW,
}


@pytest.mark.parametrize("polled", POLLED)
def test_lost_or_still_to_come(polled: str) -> None:
    """The whole truth table of MESSAGE_LOST, ACTORS_LAG, NO_ACTORS and SERVERS_WERE_DOWN for a message a minute old."""
    queued_at = NOW - timedelta(minutes=1)
    for depth, *flags in product((None, 0, 5), *[(False, True)] * 4):
        overdue, younger_taken, known, other_polled = flags
        statistics = {"polled_at": POLLED[polled], "taken_queued_at": NOW if younger_taken else LONG_AGO}
        judged = decision(QUEUED, queued_at=queued_at, recovery_time=JUST_NOW if overdue else SOON)
        depths = {"another": 0} if depth is None else {"add": depth}
        queues = {"sum": NOW if other_polled else LONG_AGO}
        found = judge_decision(judged, around(queue=statistics if known else None, queues=queues, depths=depths))
        is_polled = known and polled == "now"
        expected: tuple[Rule, Repair] | None = None
        if (known and younger_taken) or (is_polled and depth == 0):
            expected = (Rule.MESSAGE_LOST, Repair.REQUEUE_MESSAGE)
        elif overdue:
            unpolled = Rule.NO_ACTORS if other_polled else Rule.SERVERS_WERE_DOWN
            expected = (Rule.ACTORS_LAG if is_polled else unpolled, Repair.WAIT)
        condition = (
            f"depth {depth}, overdue {overdue}, a younger one taken {younger_taken}, queue known {known}, "
            f"another polled {other_polled}"
        )
        assert (found and (found.rule, found.repair)) == expected, condition


@pytest.mark.parametrize(
    ("ahead", "believed"),
    [(TICK, True), (POLLED_TIMEOUT - TICK, True), (POLLED_TIMEOUT, False), (timedelta(days=365 * 7900), False)],
    ids=str,
)
def test_a_poll_that_is_still_to_come_proves_nothing(ahead: timedelta, believed: bool) -> None:
    """But for one that came while it was asked: `now` is read first."""
    judged = decision(QUEUED, queued_at=LONG_AGO, recovery_time=JUST_NOW)
    polled = {"polled_at": NOW + ahead}
    for depth, rule in ((9, Rule.ACTORS_LAG), (0, Rule.MESSAGE_LOST)):
        found = judge_decision(judged, around(queue=polled, depths={"add": depth}))
        assert found is not None
        assert found.rule is (rule if believed else Rule.SERVERS_WERE_DOWN)


@pytest.mark.parametrize(
    ("age", "polled_at", "lost"),
    [
        (2 * MESSAGE_MARGIN + TICK, NOW, True),
        (2 * MESSAGE_MARGIN, NOW, False),
        (3 * MESSAGE_MARGIN, NOW - 2 * MESSAGE_MARGIN, False),
        (3 * MESSAGE_MARGIN, NOW - 2 * MESSAGE_MARGIN + TICK, True),
    ],
    ids=["old enough", "may be on its way", "last polled when it was on its way", "polled since"],
)
def test_an_empty_queue_proves_nothing_of_a_message_on_its_way(age: timedelta, polled_at: datetime, lost: bool) -> None:
    judged = decision(QUEUED, queued_at=NOW - age)
    found = judge_decision(judged, around(queue={"polled_at": polled_at}, depths={"add": 0}))
    assert (found is not None) == lost


KILLED = LostAttempt(attempt=0, how="was ended by signal 9 (SIGKILL)")


@pytest.mark.parametrize(
    ("surroundings", "lost_attempt"),
    [(around, None), (around, KILLED), (lambda **c: around(lost_workers=frozenset({"w1"}), **c), KILLED)],
    ids=["timed out", "killed, and seen late", "killed"],
)
@pytest.mark.parametrize(
    ("actor", "timeouts", "repair"),
    [
        (None, 8, Repair.REQUEUE),
        (None, 9, Repair.FAIL),
        ({"max_work_timeouts": 3}, 1, Repair.REQUEUE),
        ({"max_work_timeouts": 3}, 2, Repair.FAIL),
        ({"max_work_timeouts": 3}, 50, Repair.FAIL),
        ({"max_work_timeouts": 1}, 0, Repair.FAIL),
        ({"restart_after_work_timeout": False}, 0, Repair.FAIL),
    ],
)
def test_an_attempt_that_is_lost_for_good(
    surroundings: Any, lost_attempt: LostAttempt | None, actor: dict[str, Any] | None, timeouts: int, repair: Repair
) -> None:
    lost = decision(WORKING, worker="w1#7", recovery_time=LONG_AGO, timeouts=timeouts, lost_attempt=lost_attempt)
    found = judge_decision(lost, surroundings(actor=actor))
    assert found is not None
    assert found.repair is repair


@pytest.mark.parametrize(
    ("workers_lost", "timeouts", "repair"),
    [(None, 9, Repair.REQUEUE), (28, 0, Repair.REQUEUE), (29, 0, Repair.FAIL), (500, 0, Repair.FAIL)],
)
def test_an_attempt_that_is_lost_with_its_worker(workers_lost: int | None, timeouts: int, repair: Repair) -> None:
    """It does not count against the task, which has an end all the same."""
    lost = decision(WORKING, worker="w1#7", timeouts=timeouts, workers_lost=workers_lost)
    found = judge_decision(lost, around(lost_workers=frozenset({"w1"})))
    assert found is not None
    assert (found.rule, found.repair) == (Rule.WORKER_LOST, repair)


FORCED = {"task_timeout": 60, "force_finish_after_task_timeout": True}
MOMENTS = st.none() | st.integers(-7200, 7200).map(lambda seconds: NOW + timedelta(seconds=seconds))


@examples(100)
@given(
    judged=st.builds(
        Decision,
        id=st.just(ID), actor=st.just("add"), state=st.sampled_from(DecisionState),
        timeouts=st.integers(0, 20), enqueued_at=MOMENTS, queued_at=MOMENTS, recovery_time=MOMENTS,
        worker=st.sampled_from([None, "w1", "w1#7", "w2#7"]),
        outcome=st.sampled_from([None, Outcome(pass_key="k")]),
    ),
    polled_at=MOMENTS, taken_queued_at=MOMENTS, found_empty_at=MOMENTS, seen_empty_at=MOMENTS, lost_before=MOMENTS,
    looks_again=st.booleans(),
    depth=st.sampled_from([{}, {"add": 0}, {"add": 3}]),
    lost=st.sampled_from([frozenset[str](), frozenset({"w1"}), frozenset({"w1#7"})]),
    blocked=st.booleans(), actor=st.sampled_from([None, {"task_timeout": 60}, FORCED]),
)  # fmt: skip
def test_whatever_is_overdue_gets_a_repair_that_fits_its_state(
    judged: Decision, polled_at: datetime | None, taken_queued_at: datetime | None,
    found_empty_at: datetime | None, seen_empty_at: datetime | None, lost_before: datetime | None,
    looks_again: bool, depth: dict[str, int], lost: frozenset[str], blocked: bool, actor: dict[str, Any] | None,
) -> None:  # fmt: skip
    """No live decision whose deadline is past, or is missing, is left to nobody: but to the next look, what may be in
    hand."""
    queue = {"polled_at": polled_at, "taken_queued_at": taken_queued_at, "found_empty_at": found_empty_at}
    queue |= {"lost_before": lost_before, "seen_empty_at": seen_empty_at}
    known = {"blocked": frozenset({"add"} if blocked else ()), "lost_workers": lost, "looks_again": looks_again}
    about = around(queue=queue, actor=actor, depths=depth, **known)
    found = judge_decision(judged, about)
    live = judged.state in (DELAYED, QUEUED, WORKING)
    if live and (judged.recovery_time is None or judged.recovery_time <= NOW) and found is None:
        assert judged.state is QUEUED and looks_again and depth == {"add": 0}
        if "add" not in about.seen_empty():  # somebody keeps it already
            assert seen_empty_at is not None and NOW - CLAIM_MARGIN < seen_empty_at <= NOW
        if seen_empty_at is not None and seen_empty_at <= NOW - CLAIM_MARGIN:
            assert judged.queued_at is not None and judged.queued_at >= seen_empty_at - MESSAGE_MARGIN
    fitting = {
        WAITING: set[Repair](),
        DELAYED: {Repair.ENQUEUE_DUE, Repair.END_OVERDUE},
        QUEUED: {Repair.REQUEUE_MESSAGE, Repair.WAIT, Repair.END_OVERDUE},
        WORKING: {Repair.REQUEUE, Repair.FAIL, Repair.END_OVERDUE},
        FINISHED: {Repair.APPLY},
    }
    if found is not None:
        missing = judged.recovery_time is None
        assert found.repair in ({Repair.STAMP} if missing else fitting[judged.state])


@pytest.mark.parametrize("key", STRANGE_IDS)
def test_a_queued_task_whose_id_is_none_of_ours_is_damaged_and_not_requeued(key: str) -> None:
    """No worker takes its message, however often it is pushed: whatever proves that the last one is lost."""
    lost = (
        around(queue={"taken_queued_at": JUST_NOW}),
        around(queue={"found_empty_at": JUST_NOW}),
        around(queue={"lost_before": JUST_NOW}),
    )
    for surroundings in lost:
        ours = decision(QUEUED, queued_at=LONG_AGO)
        found = judge_decision(ours, surroundings)
        assert found is not None and found.rule is Rule.MESSAGE_LOST
        assert judge_decision(ours.evolve(id=key), surroundings) is None, "its deadline is to come"
        overdue = judge_decision(ours.evolve(id=key, recovery_time=LONG_AGO), surroundings)
        assert overdue is not None and (overdue.rule, overdue.repair) == (Rule.RECORD_DAMAGED, Repair.WAIT)
        assert f"its id {key!r} is not of the form PROCESS/TASK" in overdue.evidence
