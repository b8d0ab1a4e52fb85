"""Races, each made to happen on purpose: one step stops at a named call of the store, others act, and it goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from recovery.rules import Rule
from recovery.scan import DecisionScanner, ScanResult
from tests.faults import Course, Died, Fault, Kind, Plan
from tests.stateful.cluster import APPLY, MESSAGE, SILENCE, WORK, Cluster, Member, go_on, work
from tests.stateful.kills import node
from tests.stateful.programs import ANY_ATTEMPT, HOLDER_ONLY
from tests.stateful.rest import bring_to_rest

CUSTOM_ID = "the order"


def begun(work: Callable[[], Any], *at: str) -> Course:
    """A step that has come to the first of these places: 'before Decisions.finish', 'after Requeues.timed_out', 'amid
    Tasks.insert'; behind it how many times it is passed before."""
    kinds = {"before": Kind.PAUSE, "after": Kind.PAUSE_AFTER, "amid": Kind.PAUSE_HALF}
    faults = []
    for place in at:
        when, step, *skipped = place.split()
        faults.append(Fault(kinds[when], int(skipped[0]) if skipped else 0, step))
    course = Course(work, Plan(*faults))
    assert not course.go(), f"it ended, and did not come to {at}: {course.error!r}"
    return course


def working(cluster: Cluster, *at: str, member: Member | None = None) -> Course:
    """A worker that took the next message and stands at one of these places."""
    member = member or cluster.member()
    message = cluster.take(member)
    assert message is not None
    return begun(lambda: cluster.run(member, message), *at)


def scan(cluster: Cluster, page: int = 100) -> ScanResult:
    """One run of a Decision scanner of its own."""
    member = cluster.member()
    scanner = DecisionScanner(member.resources, member.outbox)
    scanner.page = page
    result = scanner.run_once()
    assert result.error is None
    return result


def decision(cluster: Cluster, actor: str = "run") -> dict[str, Any]:
    """The decision of the one task of this actor."""
    (found,) = cluster.database["decisions"].find({"actor": actor})
    return dict(found)


def graph(cluster: Cluster) -> dict[str, Any]:
    (found,) = cluster.database["graphs"].find()
    return dict(found)


def messages(cluster: Cluster) -> int:
    return sum(int(cluster.redis.llen(name)) for name in cluster.app.actors)


def ends_right(cluster: Cluster, program: Any) -> None:
    bring_to_rest(cluster, {CUSTOM_ID: program})


def start(cluster: Cluster, program: Any) -> Any:
    cluster.start(program, CUSTOM_ID)
    return program


def test_a_result_arrives_between_the_find_and_the_requeue(cluster: Cluster) -> None:
    program = start(cluster, node())
    worker = working(cluster, "before Actor.body")
    cluster.passing.pass_by(WORK + 1)
    scanner = begun(lambda: scan(cluster), "before Requeues.timed_out")
    worker.finish()
    assert scanner.finish().repaired == {}
    assert (decision(cluster)["attempts"], messages(cluster)) == (1, 0)
    ends_right(cluster, program)


@pytest.mark.parametrize(("actor", "attempts"), [(ANY_ATTEMPT, 1), (HOLDER_ONLY, 2)])
def test_a_result_arrives_between_the_requeue_and_its_push(cluster: Cluster, actor: str, attempts: int) -> None:
    """It is accepted, and the message is stale; or it is not, and the message brings the next attempt."""
    go_on(on_the_spot=False)
    program = start(cluster, node(1, [node(2, actor=actor), []]))
    work(cluster)
    worker = working(cluster, "before Actor.body")
    cluster.passing.pass_by(WORK + 1)
    scanner = begun(lambda: scan(cluster), "after Requeues.timed_out")
    worker.finish()
    assert scanner.finish().repaired == {Rule.WORK_TIMEOUT: 1}
    assert messages(cluster) == 1
    work(cluster)
    assert (decision(cluster, actor)["attempts"], decision(cluster, actor)["state"]) == (attempts, "finished")
    ends_right(cluster, program)


def test_a_page_full_of_what_still_waits_lets_no_other_starve(cluster: Cluster) -> None:
    """Queued for longest, of a queue that nobody polls: they are not to be touched. What is behind them is."""
    go_on(on_the_spot=False)
    start(cluster, node(1, *([node(), []] for _ in range(6)), [node(2, actor=HOLDER_ONLY), []]))
    work(cluster)
    member = cluster.member()
    cluster.passing.pass_by(1)
    message = cluster.take(member, sorted(cluster.app.actors).index(HOLDER_ONLY))
    assert message is not None
    begun(lambda: cluster.run(member, message), "before Actor.body").die()
    cluster.passing.pass_by(2 * WORK)
    result = scan(cluster, page=3)
    assert (result.looked_at, result.repaired) == (7, {Rule.WORK_TIMEOUT: 1})
    queued = cluster.database["decisions"].find({"actor": ANY_ATTEMPT})
    assert {document["state"] for document in queued} == {"queued"}
    assert messages(cluster) == 6 + 1, "no message was pushed again"


def test_a_heartbeat_is_before_the_requeue(cluster: Cluster) -> None:
    program = start(cluster, node(beats=True))
    worker = working(cluster, "before DecisionDeadlines.extend", "after DecisionDeadlines.extend")
    cluster.passing.pass_by(WORK + 1)
    scanner = begun(lambda: scan(cluster), "before Requeues.timed_out")
    assert not worker.go(), "the heartbeat is told"
    assert scanner.finish().repaired == {}
    worker.finish()
    assert decision(cluster)["attempts"] == 1
    ends_right(cluster, program)


def test_a_heartbeat_is_after_the_requeue(cluster: Cluster) -> None:
    """It changes nothing, and tells the attempt to stop."""
    program = start(cluster, node(beats=True))
    worker = working(cluster, "before DecisionDeadlines.extend")
    cluster.passing.pass_by(WORK + 1)
    assert scan(cluster).repaired == {Rule.WORK_TIMEOUT: 1}
    before = decision(cluster)
    worker.finish()
    assert decision(cluster) == before
    work(cluster)
    assert decision(cluster)["attempts"] == 2
    ends_right(cluster, program)


@pytest.mark.parametrize("first_stops", ["before Requeues.timed_out", "after Requeues.timed_out"])
def test_two_scanners_on_the_same_page(cluster: Cluster, first_stops: str) -> None:
    """Each record is requeued by one of them, counted once and has one message."""
    go_on(on_the_spot=False)
    program = start(cluster, node(1, *([node(), []] for _ in range(5))))
    work(cluster)
    for _ in range(5):
        working(cluster, "before Actor.body").die()
    cluster.passing.pass_by(WORK + 1)
    first = begun(lambda: scan(cluster), first_stops)
    second = begun(lambda: scan(cluster), "before Requeues.timed_out") if "before" in first_stops else None
    by_first: Counter[Rule] = first.finish().repaired
    by_second = second.finish().repaired if second is not None else scan(cluster).repaired
    assert (by_first, by_second) == ({Rule.WORK_TIMEOUT: 5}, {})
    timeouts = [document.get("timeouts") for document in cluster.database["decisions"].find({"actor": ANY_ATTEMPT})]
    assert (timeouts, messages(cluster)) == ([1] * 5, 5)
    ends_right(cluster, program)


@pytest.mark.parametrize("stops", ["before Decisions.claim_ready", "after Decisions.claim_ready"])
def test_a_task_is_claimed_on_the_spot_and_enqueued(cluster: Cluster, stops: str) -> None:
    """Who made it ready is about to claim it; meanwhile its parent counts as not applied, and is applied again."""
    program = start(cluster, node(1, [node(2), []]))
    worker = working(cluster, stops)
    cluster.passing.pass_by(APPLY + 1)
    scan(cluster)
    enqueued = stops.startswith("before")
    child = decision(cluster, ANY_ATTEMPT)
    assert (child["state"], messages(cluster)) == (("queued", 1) if enqueued else ("working", 0))
    worker.finish()
    child = decision(cluster, ANY_ATTEMPT)
    assert (child["state"], child.get("attempts", 0)) == (("queued", 0) if enqueued else ("finished", 1))
    ends_right(cluster, program)
    assert decision(cluster, ANY_ATTEMPT)["attempts"] == 1, "by one of them"


def chain(first: str, then: str) -> Any:
    """The second task waits for the first alone: whoever ends the one claims the other."""
    return node(1, [node(2, actor=first), []], [node(3, actor=then), [0]])


@pytest.mark.parametrize(("first", "then"), [(ANY_ATTEMPT, HOLDER_ONLY), (HOLDER_ONLY, ANY_ATTEMPT)])
def test_a_step_is_requeued_before_it_is_finished_and_its_successor_claimed(
    cluster: Cluster, first: str, then: str
) -> None:
    """Who was frozen there claims the successor if its own result is taken, and else leaves it alone."""
    program = start(cluster, chain(first, then))
    worker = working(cluster, "before Decisions.finish 1")
    cluster.passing.pass_by(WORK + 1)
    scan(cluster)
    other = working(cluster, "before Decisions.finish")
    worker.finish()
    assert decision(cluster, then)["state"] == ("finished" if first == ANY_ATTEMPT else "waiting")
    other.finish()
    ends_right(cluster, program)
    assert decision(cluster, then)["attempts"] == 1


@pytest.mark.parametrize("kind", [Kind.BEFORE, Kind.DIES])
def test_a_finish_lands_and_the_claim_that_goes_with_it_does_not(cluster: Cluster, kind: Kind) -> None:
    """Whoever asked does not know of it, or is gone: the result counts, and the successor runs once."""
    program = start(cluster, chain(ANY_ATTEMPT, HOLDER_ONLY))
    member = cluster.member()
    message = cluster.take(member)
    assert message is not None
    worker = Course(lambda: cluster.run(member, message), Plan(Fault(kind, 1, "Decisions.claim_ready")))
    assert worker.go()
    assert isinstance(worker.error, Died) == (kind is Kind.DIES)
    first, then = decision(cluster, ANY_ATTEMPT), decision(cluster, HOLDER_ONLY)
    assert (first["state"], then["state"]) == ("finished", "waiting")
    ends_right(cluster, program)
    accepted = decision(cluster, ANY_ATTEMPT)["outcome"]
    assert (accepted["pass"], accepted["value"]) == (first["outcome"]["pass"], first["outcome"]["value"])
    assert (decision(cluster, ANY_ATTEMPT)["attempts"], decision(cluster, HOLDER_ONLY)["attempts"]) == (1, 1)


def test_a_scanner_enqueues_the_successor_between_a_finish_and_its_claim(cluster: Cluster) -> None:
    """The claim finds it queued and leaves it alone; its message brings the one attempt."""
    program = start(cluster, chain(ANY_ATTEMPT, HOLDER_ONLY))
    worker = working(cluster, "before Decisions.claim_ready 1")
    cluster.passing.pass_by(APPLY + 1)
    scan(cluster)
    queued = decision(cluster, HOLDER_ONLY)
    assert (queued["state"], messages(cluster)) == ("queued", 1)
    worker.finish()
    assert decision(cluster, HOLDER_ONLY) == queued
    ends_right(cluster, program)
    assert (decision(cluster, ANY_ATTEMPT)["attempts"], decision(cluster, HOLDER_ONLY)["attempts"]) == (1, 1)


def test_a_successor_is_requeued_while_its_holder_thinks_it_has_it(cluster: Cluster) -> None:
    program = start(cluster, chain(ANY_ATTEMPT, HOLDER_ONLY))
    worker = working(cluster, "after Decisions.claim_ready 1")
    cluster.passing.pass_by(WORK + 1)
    assert scan(cluster).repaired[Rule.WORK_TIMEOUT] == 1
    requeued = decision(cluster, HOLDER_ONLY)
    assert requeued["state"] == "queued"
    worker.finish()
    assert decision(cluster, HOLDER_ONLY) == requeued, "the result of the pass before is not taken"
    work(cluster)
    ends_right(cluster, program)
    assert decision(cluster, HOLDER_ONLY)["attempts"] == 2


@pytest.mark.parametrize("first", ["the worker", "the scanner"])
def test_a_worker_applies_what_it_put_off_while_a_scanner_repairs_that(cluster: Cluster, first: str) -> None:
    """Both are about to write it into the graph. It is there once, and what follows it runs once."""
    program = start(cluster, chain(ANY_ATTEMPT, HOLDER_ONLY))
    member = cluster.member()
    message = cluster.take(member)
    assert message is not None
    third = Plan(Fault(Kind.PAUSE, 2, "Actor.body"))
    worker = Course(lambda: cluster.run(member, message), third)
    assert not worker.go(), "it runs the last of the three"
    flush = begun(member.outbox.flush, "before Graphs.apply")
    cluster.passing.pass_by(APPLY + 1)
    repair = begun(lambda: scan(cluster), "before Graphs.apply")
    steps = [flush, repair] if first == "the worker" else [repair, flush]
    steps[0].finish()
    version = graph(cluster)["version"]
    steps[1].finish()
    assert (graph(cluster)["version"], len(graph(cluster)["finished"])) == (version, 2)
    worker.finish()
    ends_right(cluster, program)
    assert decision(cluster, HOLDER_ONLY)["attempts"] == 1


@pytest.mark.parametrize(
    ("kind", "times", "sent"),
    [
        pytest.param(Kind.BEFORE, 1, 1, id="once: it is sent again"),
        pytest.param(Kind.AFTER, 1, 2, id="once, the reply was lost: it is sent twice"),
        pytest.param(Kind.BEFORE, 2, 0, id="twice"),
    ],
)
def test_the_requeue_is_written_and_its_push_fails(cluster: Cluster, kind: Kind, times: int, sent: int) -> None:
    """Where the message is not there the decision's deadline stands; and it runs once more only."""
    program = start(cluster, node())
    working(cluster, "before Actor.body").die()
    cluster.passing.pass_by(WORK + 1)
    scanner = begun(lambda: scan(cluster), "after Requeues.timed_out")
    scanner.plan.add(kind, "Pipeline.execute", times)
    assert scanner.finish().repaired == {Rule.WORK_TIMEOUT: 1}
    assert (decision(cluster)["state"], messages(cluster)) == ("queued", sent)
    if not sent:
        found = []
        for _ in range(2):  # that its queue is empty is believed by the second look
            cluster.passing.pass_by(MESSAGE + 1)
            cluster.beat(cluster.member())
            cluster.app.resources.store.catch_up(10)
            found.append(scan(cluster).repaired)
        assert found == [{}, {Rule.MESSAGE_LOST: 1}]
    work(cluster)
    ends_right(cluster, program)
    assert (decision(cluster)["attempts"], decision(cluster)["timeouts"]) == (2, 1)


def test_the_requeue_is_written_and_its_scanner_dies(cluster: Cluster) -> None:
    program = start(cluster, node())
    working(cluster, "before Actor.body").die()
    cluster.passing.pass_by(WORK + 1)
    with pytest.raises(Died):
        Course(lambda: scan(cluster), Plan(Fault(Kind.DIES_AFTER, 0, "Requeues.timed_out"))).finish()
    assert (decision(cluster)["state"], messages(cluster)) == ("queued", 0)
    ends_right(cluster, program)
    assert (decision(cluster)["attempts"], decision(cluster)["timeouts"]) == (2, 1)


def test_a_task_that_kills_its_workers_is_given_up_and_told_of(cluster: Cluster) -> None:
    """The same record is requeued as often as it may be, and not once more."""
    cluster.app.process("deadly", worker_timeout=WORK, max_work_timeouts=3)(lambda: pytest.fail("it does not run"))
    cluster.tell()
    process_id = cluster.app.start("deadly")
    cluster.app.registrar.flush()
    repaired = []
    for losses in range(3):
        if losses == 2:  # after the second in a row it waits
            cluster.passing.pass_by(1.1)
            repaired.append(scan(cluster).repaired)
        working(cluster, "after Decisions.claim").die()
        cluster.passing.pass_by(WORK + 1)
        repaired.append(scan(cluster).repaired)
    lost, due = {Rule.WORK_TIMEOUT: 1}, {Rule.DUE: 1}
    assert repaired == [lost, lost, due, lost]
    (process,) = cluster.database["processes"].find()
    assert (process["_id"], process["state"], process["error"]["kind"]) == (process_id, "broken", "WorkTimeout")
    assert "max_work_timeouts" in process["error"]["message"]
    assert messages(cluster) == 0
    cluster.passing.pass_by(10 * SILENCE)
    assert scan(cluster).looked_at == 0


def test_what_can_not_be_repaired_is_looked_at_now_and_then(cluster: Cluster) -> None:
    """Another program wrote it: a waiting task with a deadline. One look each time, and no repair."""
    start(cluster, node())
    work(cluster)
    waiting = {"$set": {"state": "waiting", "recoveryTime": "$$NOW"}}
    cluster.database["decisions"].update_many({}, [waiting, {"$unset": "outcome"}])
    for _ in range(3):
        result = scan(cluster, page=1)
        assert (result.looked_at, result.repaired) == (1, {})
        assert scan(cluster, page=1).looked_at == 0
        cluster.passing.pass_by(MESSAGE + 1)
