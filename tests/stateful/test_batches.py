"""Batches of quick tasks: cut off at each of their steps, and held back while others act."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pytest

from recovery import metrics
from recovery.engine.run.trying import Result
from recovery.errors import StoreRefused, StoreUnavailable
from recovery.records import Outcome, to_document
from recovery.records.ids import new_pass
from recovery.store.lifecycle.decisions import Decisions
from recovery.store.lifecycle.requeues import Requeues
from tests.faults import Course, Died, Fault, Kind, Plan
from tests.faults.plan import DEATHS
from tests.stateful.cluster import WORK, Cluster, Member, go_on, work
from tests.stateful.kills import node
from tests.stateful.machine import AT_BATCHES
from tests.stateful.programs import HOLDER_ONLY
from tests.stateful.rest import bring_to_rest

pytestmark = pytest.mark.thorough

LEAVES = 4
FAN_OUT = node(1, *([node(number), []] for number in range(2, 2 + LEAVES)), [node(9), list(range(LEAVES))])
KINDS = [
    kind for kind in Kind if kind.name.startswith("DIES") or kind in (Kind.BEFORE, Kind.AFTER, Kind.HALF, Kind.AWAY)
]


def ready(cluster: Cluster) -> dict[str, Any]:
    """The leaves are queued, and so are processes of one task, {custom id: program}."""
    go_on(on_the_spot=False, size=LEAVES + 1)
    programs = {"fan-out": FAN_OUT}
    cluster.start(FAN_OUT, "fan-out")
    work(cluster)
    return programs


def alone(cluster: Cluster) -> dict[str, Any]:
    """Processes of one task are queued."""
    go_on(on_the_spot=False, size=LEAVES)
    programs = {f"alone {number}": node(number) for number in range(LEAVES + 1)}
    for custom_id, program in programs.items():
        cluster.start(program, custom_id)
    return programs


def one_by_one(cluster: Cluster) -> dict[str, Any]:
    """The leaves are queued; a slot that took one takes the others by itself, each alone."""
    programs = ready(cluster)
    go_on(on_the_spot=False, by_itself=True)
    return programs


CHAIN = node(1, [node(2), []], [node(3), [0]], [node(4), [1]])
SHAPES = {
    "fan-out": FAN_OUT,
    "chain": CHAIN,
    "another chain": CHAIN,  # which ends with the other
    "deep": node(1, [node(2, [node(3), []], [node(4), []]), []], [node(5), [0]]),
}


def several(cluster: Cluster) -> dict[str, Any]:
    """The starts of processes of several tasks are queued."""
    go_on(on_the_spot=False, size=len(SHAPES))
    for custom_id, program in SHAPES.items():
        cluster.start(program, custom_id)
    return SHAPES


def batch(cluster: Cluster, member: Member, *faults: Fault) -> Course:
    """A slot that takes a message, and then the others together."""
    message = cluster.take(member)
    assert message is not None
    course = Course(lambda: cluster.run(member, message), Plan(*faults))
    course.go()
    return course


def states(cluster: Cluster, actor: str = "any_attempt") -> list[str]:
    return sorted(one["state"] for one in cluster.database["decisions"].find({"actor": actor}))


OF_SEVERAL = (
    *("Decisions.claim", "Decisions.finish", "Tasks.insert", "Decisions.insert", "Graphs.apply"),
    *("Decisions.claim_ready", "Requeues.enqueue_ready", "Processes.finish"),
)
OF_ONE = ("Decisions.claim", "Decisions.finish", "Graphs.apply")
OF_ONE_PROCESS = ("Decisions.claim", "Decisions.finish", "Graphs.apply", "DecisionDeadlines.clear_deadlines")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("step", "begin"),
    [
        *((step, ready) for step in OF_ONE_PROCESS),
        *((step, alone) for step in AT_BATCHES),
        *((step, several) for step in OF_SEVERAL),
        *((step, one_by_one) for step in OF_ONE),
    ],
)
def test_it_is_cut_off(cluster: Cluster, step: str, kind: Kind, begin: Any) -> None:
    _is_cut_off(cluster, begin, Fault(kind, 1 if begin is one_by_one else 0, step))


@pytest.mark.parametrize("kind", [kind for kind in DEATHS if kind is not Kind.DIES_HALF])
@pytest.mark.parametrize("begin", [ready, alone, one_by_one])
def test_it_dies_while_it_runs_one(cluster: Cluster, kind: Kind, begin: Any) -> None:
    _is_cut_off(cluster, begin, Fault(kind, 2, "Actor.body"))


def _is_cut_off(cluster: Cluster, begin: Any, fault: Fault) -> None:
    programs, member = begin(cluster), cluster.member()
    message = cluster.take(member)
    assert message is not None
    plan = Plan(fault)

    def run() -> None:
        cluster.run(member, message)
        member.outbox.flush()

    course = Course(run, plan)
    assert course.go()
    assert plan.told, f"it did not come to {fault}"
    if isinstance(course.error, Died):
        cluster.rescue(cluster.member(), member.worker.id)
    bring_to_rest(cluster, programs)


def test_what_waits_for_a_slow_task_goes_back_and_what_has_ended_is_written(cluster: Cluster) -> None:
    programs = ready(cluster)
    member = cluster.member()
    slot = batch(cluster, member, Fault(Kind.PAUSE, 2, "Actor.body"))
    assert not slot.over
    assert states(cluster) == ["waiting", *["working"] * 4]
    assert member.watch.relieve()
    assert states(cluster) == ["finished"] * 2 + ["queued", "waiting", "working"]
    queued = cluster.database["decisions"].find_one({"state": "queued"})
    assert queued is not None and not {"inBatch", "alone", "timeouts"} & {key for key, value in queued.items() if value}
    assert not member.watch.relieve(), "once"
    go_on(on_the_spot=False)
    work(cluster)
    assert states(cluster) == ["finished"] * 3 + ["waiting", "working"]
    slot.finish()
    assert states(cluster) == ["finished"] * 4 + ["queued"]
    bring_to_rest(cluster, programs)


def test_another_attempt_overtakes_one_of_a_batch(cluster: Cluster) -> None:
    """Its result is stale; those of the others are taken."""
    programs = ready(cluster)
    slot = batch(cluster, cluster.member(), Fault(Kind.PAUSE, 0, "Decisions.finish"))
    assert not slot.over
    ids = [one["_id"] for one in cluster.database["decisions"].find({"state": "working"}).sort("_id", 1)]
    cluster.database["decisions"].update_one({"_id": ids[1]}, [{"$set": {"recoveryTime": {"$subtract": ["$$NOW", 1]}}}])
    assert cluster.scan(cluster.member(), "decisions", 100) is None
    go_on(on_the_spot=False)
    work(cluster)
    by_another = cluster.database["decisions"].find_one({"_id": ids[1]})
    slot.finish()
    assert (
        by_another is not None and cluster.database["decisions"].find_one({"_id": ids[1]})["pass"] == by_another["pass"]
    )
    assert states(cluster)[:4] == ["finished"] * 4
    bring_to_rest(cluster, programs)


def test_of_two_messages_of_a_task_each_is_looked_at_by_itself(cluster: Cluster) -> None:
    """One of them is stale. The others are claimed together all the same, and the first is told what came of it."""
    programs, member = alone(cluster), cluster.member()
    run = cluster.app.actors["run"]
    first, *others = cluster.hints("run", LEAVES + 1)
    stale, claims = replace(first, pass_key=new_pass()), list[int]()
    real = Decisions.claim

    def claim(self: Any, actor: str, passes: Any, *rest: Any) -> Any:
        claims.append(len(passes))
        return real(self, actor, passes, *rest)

    with patch.object(Decisions, "claim", claim):
        came_of = member.slot._run(run, [first, *others, stale], float("inf"))
    assert claims == [LEAVES, 1, 1]
    assert (came_of[first], came_of[stale]) == (Result.FINISHED, Result.STALE_MESSAGE)
    assert {came_of[one] for one in others} == {Result.FINISHED}
    bring_to_rest(cluster, programs)


def test_a_batch_whose_holder_is_lost_counts_no_time_out_and_is_claimed_one_by_one(cluster: Cluster) -> None:
    """Nobody knows which of them it ran: by the next time it is known."""
    programs = ready(cluster)
    member = cluster.member()
    batch(cluster, member, Fault(Kind.PAUSE, 2, "Actor.body")).die()
    cluster.rescue(cluster.member(), member.worker.id)
    lost = list(cluster.database["decisions"].find({"state": "queued"}))
    assert [(one.get("timeouts") or 0, one.get("alone"), one.get("inBatch")) for one in lost] == [
        (0, True, None)
    ] * LEAVES
    again = cluster.member()
    slot = batch(cluster, again, Fault(Kind.PAUSE, 1, "Actor.body"))
    working = list(cluster.database["decisions"].find({"state": "working"}))
    assert [one.get("inBatch") for one in working] == [None], "the second, by itself"
    slot.die()
    cluster.rescue(cluster.member(), again.worker.id)
    counted = cluster.database["decisions"].find_one({"_id": working[0]["_id"]})
    assert counted is not None
    assert (counted["timeouts"], counted["workersLost"]) == (0, 1), "its worker was lost as a whole"
    bring_to_rest(cluster, programs)


def test_a_batch_whose_deadline_is_past_counts_none_either(cluster: Cluster) -> None:
    programs = ready(cluster)
    slot = batch(cluster, cluster.member(), Fault(Kind.PAUSE, 2, "Actor.body"))
    cluster.passing.pass_by(WORK + 1)
    assert cluster.scan(cluster.member(), "decisions", 100) is None
    overdue = list(cluster.database["decisions"].find({"state": "queued"}))
    assert [(one.get("timeouts") or 0, one["alone"]) for one in overdue] == [(0, True)] * LEAVES
    slot.finish()
    bring_to_rest(cluster, programs)


def test_results_that_only_their_holders_may_bring(cluster: Cluster) -> None:
    go_on(on_the_spot=False, size=LEAVES + 1)
    program = node(1, *([node(number, actor=HOLDER_ONLY), []] for number in range(2, 2 + LEAVES)))
    cluster.start(program, "strict")
    work(cluster)
    slot = batch(cluster, cluster.member(), Fault(Kind.PAUSE, 0, "Decisions.finish"))
    assert not slot.over
    cluster.passing.pass_by(WORK + 1)
    assert cluster.scan(cluster.member(), "decisions", 100) is None
    slot.finish()
    assert states(cluster, HOLDER_ONLY) == ["queued"] * LEAVES
    bring_to_rest(cluster, {"strict": program})


def test_a_result_that_is_not_taken_is_told_and_counted_as_such(cluster: Cluster) -> None:
    """Of processes of one task: what is not taken is no process's result."""
    programs = alone(cluster)
    member = cluster.member()
    slot = batch(cluster, member, Fault(Kind.PAUSE, 0, "Decisions.finish"))
    assert not slot.over
    (first, *_) = ids = [one["_id"] for one in cluster.database["decisions"].find({"state": "working"}).sort("_id", 1)]
    cluster.passing.pass_by(WORK + 1)
    assert cluster.scan(cluster.member(), "decisions", 100) is None
    other = Outcome(pass_key="f" * 32, value='"of another attempt"')
    ended = {"state": "finished", "outcome": to_document(other), "recoveryTime": datetime.now(UTC)}
    cluster.database["decisions"].update_one({"_id": first}, {"$set": ended})
    stale = metrics.STALE.labels("result")
    before = stale._value.get()
    slot.finish()
    member.outbox.flush()
    assert stale._value.get() - before == 1
    process = cluster.database["processes"].find_one({"_id": first.partition("/")[0]})
    assert process is not None and process["state"] == "running", "whoever had it taken ends it"
    over = cluster.database["processes"].count_documents({"state": "finished"})
    assert over == len(ids), "those of it whose results were taken, and the one after it"
    assert len(programs) == len(ids) + 1


@pytest.mark.parametrize("change", [{"notFinished.other": 1}, {"epoch": 1}])
def test_a_process_is_not_ended_whose_graph_says_that_more_is_to_be_done(cluster: Cluster, change: Any) -> None:
    alone(cluster)
    member = cluster.member()
    slot = batch(cluster, member, Fault(Kind.PAUSE, 0, "Graphs.apply"))
    assert not slot.over
    finished = [one["_id"] for one in cluster.database["decisions"].find({"state": "finished"}).sort("_id", 1)]
    spoilt = finished[-1].partition("/")[0]
    cluster.database["graphs"].update_one({"_id": spoilt}, {"$set": change})
    slot.finish()
    member.outbox.flush()
    states = {one["_id"]: one["state"] for one in cluster.database["processes"].find()}
    assert states.pop(spoilt) == "running"
    assert set(states.values()) == {"finished"}


@pytest.mark.parametrize(
    ("error", "state", "others"),
    [
        (TypeError("no date"), "working", ["finished"] * 3),
        (StoreRefused("it has a field too many"), "queued", ["finished"] * 3),
        (StoreUnavailable("away"), "queued", ["finished"] * 2 + ["queued"]),
    ],
    ids=["spoilt", "refused", "away"],
)
@pytest.mark.parametrize("begin", [ready, one_by_one])
def test_an_error_of_one_is_none_of_the_others(
    cluster: Cluster, begin: Any, error: Exception, state: str, others: list[str]
) -> None:
    """What has ended is written, whatever comes after it; and where it is no server's fault all of a batch are run."""
    programs, member = begin(cluster), cluster.member()
    if begin is one_by_one:
        others = ["finished"] * 2 + ["queued"]  # what comes next is Celery's
    real, ran = member.slot._place.trying.run, list[str]()

    def run(actor: Any, here: Any, *rest: Any) -> Any:
        ran.append(here.decision.id)
        if len(ran) == 3:
            raise error
        return real(actor, here, *rest)

    with patch.object(member.slot._place.trying, "run", run):
        slot = batch(cluster, member)
    assert slot.over
    assert slot.error is (error if isinstance(error, StoreUnavailable) else None)
    found = {one["_id"]: one["state"] for one in cluster.database["decisions"].find({"state": {"$ne": "waiting"}})}
    leaves = {key: found[key] for key in found if not key.endswith("/start")}
    assert leaves.pop(ran[2]) == state
    assert sorted(leaves.values()) == others
    if state == "working":
        cluster.passing.pass_by(WORK + 1)
    bring_to_rest(cluster, programs)


def test_what_was_claimed_for_a_decision_that_cannot_be_applied_then_is_given_back(cluster: Cluster) -> None:
    """The decider is in a batch, and its first task is claimed when the others can't be queued."""
    programs = {f"fan-out {number}": FAN_OUT for number in range(2)}
    for custom_id, program in programs.items():
        cluster.start(program, custom_id)
    member, claimed = cluster.member(), list[str]()
    for actor in ("any_attempt", "run"):
        member.slot._intake.pace.note(actor, 0.0001)
    go_on(on_the_spot=False, size=LEAVES)

    def refuses(*_: Any) -> Any:
        working = cluster.database["decisions"].find({"actor": "any_attempt", "state": "working"})
        claimed.extend(one["_id"] for one in working)
        raise StoreUnavailable("away")

    hints = cluster.hints("run", 2)
    with patch.object(Requeues, "enqueue_ready", refuses), pytest.raises(StoreUnavailable):
        member.slot._run(cluster.app.actors["run"], hints, float("inf"))
    assert claimed
    states = {one["_id"]: one["state"] for one in cluster.database["decisions"].find({"_id": {"$in": claimed}})}
    assert set(states.values()) == {"queued"}
    go_on(on_the_spot=False)
    cluster.passing.pass_by(WORK + 1)
    bring_to_rest(cluster, programs)
