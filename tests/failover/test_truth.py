"""Nobody is told what is taken back, and nothing is begun or forgotten because of it."""

from __future__ import annotations

import uuid
from typing import Any

import pymongo
import pytest

from recovery import ProcessBroken, ResultTimeout
from recovery.engine import Ended
from recovery.errors import ProcessNotFound, ServerUnavailable, StoreTimeout, StoreUnavailable
from recovery.records import Child, Decision, DecisionState, ErrorInfo, Outcome, to_document
from recovery.records.ids import child_task_id, new_pass, new_process_id
from recovery.scan import DecisionScanner, GraphScanner, ProcessScanner
from recovery.store.concerns import current
from recovery.store.views.lifeline_queries import Claim, Fate
from recovery.worker.lifeline.rescue import Rescue
from tests.failover.conftest import Background, Failover
from tests.faults import Course, Fault, Kind, Plan, installed
from tests.store import single
from tests.waiting import wait_until
from tests.world import World, by_message_only

pytestmark = pytest.mark.cluster

A_WHILE = 1.5
"""Seconds that something which must not happen is given to happen: it would within a tenth of that."""


def nonce() -> str:
    return uuid.uuid4().hex


def scan(failover: Failover) -> list[Background[Any]]:
    """All scanners at once, each in a thread: one that waits for a majority would hang."""
    resources, outbox = failover.app.resources, failover.app.outbox
    running: list[Background[Any]] = [
        Background(scanner(resources, outbox).run_once) for scanner in (DecisionScanner, GraphScanner, ProcessScanner)
    ]
    assert all(one.over(20) for one in running), "a scan hangs while nothing is acknowledged"
    return running


@pytest.mark.smoke
def test_a_result_that_is_taken_back_was_told_to_nobody(failover: Failover) -> None:
    @failover.app.process()
    def draw() -> str:
        return nonce()

    process_id = failover.world.start(draw)
    failover.stop_replication()
    lost = failover.finish_and_die("draw")
    assert lost.outcome is not None
    failover.overdue()
    scan(failover)
    with pytest.raises(ResultTimeout):
        failover.app.result(process_id, timeout=A_WHILE)
    failover.lose_primary()
    assert failover.world.bring_to_end(process_id, timeout=30).state == "finished"
    told = failover.app.result(process_id, timeout=5)
    assert f'"{told}"' != lost.outcome.value, "its end was not lost: nothing was tried"


def test_a_break_that_is_taken_back_was_told_to_nobody(failover: Failover) -> None:
    attempts: list[str] = []

    @failover.app.process()
    def pay() -> str:
        if not attempts:  # in the worker that dies; the list of this process has one by then
            raise ValueError("refused")
        return "paid"

    process_id = failover.world.start(pay)
    failover.stop_replication()
    failover.finish_and_die("pay")
    attempts.append("lost")
    failover.overdue()
    scan(failover)
    with pytest.raises(ResultTimeout):
        failover.app.result(process_id, timeout=A_WHILE)
    assert failover.world.store.interruptions.of_process(process_id) == []
    failover.lose_primary()
    failover.world.bring_to_end(process_id, timeout=30)
    assert failover.app.result(process_id, timeout=5) == "paid"


@pytest.mark.parametrize("state", ["finished", pytest.param("broken", marks=pytest.mark.soak)])
def test_an_end_of_a_process_that_is_on_its_way_is_not_told(failover: Failover, state: str) -> None:
    """Another worker writes it just now, and no majority has it."""

    @failover.app.process()
    def wait() -> None: ...

    process_id = failover.world.start(wait)
    failover.stop_replication()
    store = failover.world.store
    end = {
        "finished": lambda: single.finish_process(store, process_id, 0, '"never"'),
        "broken": lambda: store.processes.break_(process_id, 0, ErrorInfo(kind="Never", message="told")),
    }[state]
    writing = Background(end)
    wait_until(lambda: failover.world.process(process_id).state == state, 10, "the primary's word")
    try:
        with pytest.raises(ResultTimeout):
            failover.app.result(process_id, timeout=A_WHILE)
    except ProcessBroken:
        pytest.fail("told")
    failover.lose_primary()
    assert writing.over(20)
    assert isinstance(writing.error, StoreUnavailable), "it was acknowledged"
    assert failover.world.process(process_id).state == "running"


def test_two_attempts_are_never_mixed(failover: Failover) -> None:
    """A scanner has read what it applies when the primary dies: what it read is true on the next one, or it had read
    nothing."""

    @failover.app.actor()
    def echo(word: str) -> str:
        return word

    @failover.app.process()
    def twice() -> Any:
        word = nonce()
        return [echo.schedule(word), echo.schedule(word)]

    with installed():
        process_id = failover.world.start(twice)
        failover.stop_replication()
        failover.finish_and_die("twice")
        failover.overdue("decisions")
        resources, outbox = failover.app.resources, failover.app.outbox
        scanner = DecisionScanner(resources, outbox)
        course = Course(scanner.run_once, Plan(Fault(Kind.PAUSE, 0, "Tasks.insert")))
        course.go()
        failover.lose_primary()
        if not course.over:
            course.finish()
    failover.world.bring_to_end(process_id, timeout=30)
    first, second = failover.app.result(process_id, timeout=5)
    assert first == second


@pytest.mark.soak
def test_a_graph_is_not_made_of_what_may_be_taken_back(failover: Failover) -> None:
    """It would have a task as finished that is not, and wait for children that nobody scheduled."""

    @failover.app.actor()
    def echo(word: str) -> str:
        return word

    @failover.app.process()
    def once() -> Any:
        return echo.schedule(nonce())

    with installed():
        process_id = failover.world.start(once)
        failover.world.store.database["graphs"].delete_one({"_id": process_id})
        failover.stop_replication()
        failover.finish_and_die("once")
        failover.overdue("processes")
        scanner = ProcessScanner(failover.app.resources, failover.app.outbox)
        course = Course(scanner.run_once, Plan(Fault(Kind.PAUSE, 0, "Graphs.insert")))
        course.go()
        failover.lose_primary()
        if not course.over:
            course.finish()
    graph = failover.world.store.graphs.get(process_id)
    assert graph is None or graph.finished == ()
    assert failover.world.bring_to_end(process_id, timeout=30).state == "finished"


def test_a_start_that_is_not_acknowledged_runs_nothing(failover: Failover) -> None:
    ran: list[int] = []

    @failover.app.process(idle_timeout=0.4)
    def count() -> None:
        ran.append(1)

    failover.stop_replication()
    starting = Background(lambda: failover.world.start(count))
    wait_until(lambda: _started_ago(failover) > A_WHILE, 20, "the primary's word, and time for an end of the start")
    failover.overdue("processes")
    scan(failover)
    assert failover.world.store.database["decisions"].count_documents({}) == 0
    failover.lose_primary()
    assert starting.over(40)
    assert (starting.result is None) == isinstance(starting.error, ServerUnavailable)


def _started_ago(failover: Failover) -> float:
    store = failover.world.store
    return max(
        ((store.now() - found["startedAt"]).total_seconds() for found in store.database["processes"].find()), default=0
    )


def test_a_custom_id_that_is_there_is_told_when_it_stays(failover: Failover) -> None:
    """The first of two starts is not acknowledged yet: the second one is not told its id either."""

    @failover.app.process()
    def idle() -> None: ...

    failover.stop_replication()
    first = Background(lambda: failover.world.start(idle, custom_id="one"))
    wait_until(lambda: failover.world.store.database["processes"].count_documents({}), 10, "the primary's word")
    second = Background(lambda: failover.world.start(idle, custom_id="one"))
    assert not second.over(A_WHILE)
    failover.nodes.resume_replication()
    assert first.over(20) and second.over(20)
    assert first.result == second.result is not None


def test_an_accepted_end_whose_reply_was_lost_is_accepted_once_a_majority_has_it(failover: Failover) -> None:
    """The attempt asks again, and its own result is there already, by the primary's word."""

    @failover.app.process()
    def idle() -> None: ...

    failover.world.start(idle)
    store = failover.world.store
    (document,) = store.database["decisions"].find()
    claimed = single.claim(store, "idle", document["_id"], document["pass"], "mortal#1", 60)
    assert claimed is not None
    failover.stop_replication()
    outcome = Outcome(pass_key=claimed.pass_key or "", value="1")
    options: Any = {"accept_first": True, "worker": "mortal#1", "apply_timeout": 5}
    for _ in range(2):
        with pymongo.timeout(A_WHILE), pytest.raises(StoreUnavailable):
            single.finish(store, claimed, outcome, (), **options)
    assert failover.finished("idle")
    failover.nodes.resume_replication()
    assert single.finish(store, claimed, outcome, (), **options)


def test_no_deadline_goes_for_an_apply_that_is_taken_back(failover: Failover) -> None:
    """Applied on the old primary, cleared on the new one: nobody would look at it again for an idle timeout."""
    failover.world = World(failover.world.settings, apply_timeout=60)  # nothing is cleared until the test has it done

    @failover.app.actor()
    def echo(word: str) -> str:
        return word

    @failover.app.process()
    def once() -> Any: ...

    process_id = failover.world.start(once)
    failover.world.tell()
    store, outbox = failover.world.store, failover.app.outbox
    (document,) = store.database["decisions"].find()
    claimed = single.claim(store, "once", document["_id"], document["pass"], "mortal#1", 60)
    assert claimed is not None
    child = Child(id=child_task_id("start", 0, 0), actor="echo", args='[["a word"],{}]')
    outcome = Outcome(pass_key=claimed.pass_key or "", value=f'{{"$promise":"{child.id}"}}', waits=(child.id,))
    assert single.finish(store, claimed, outcome, [child], accept_first=True, worker="mortal#1", apply_timeout=60)
    failover.stop_replication()
    task, decision = store.tasks.get(document["_id"]), store.decisions.get(document["_id"])
    assert task is not None and decision is not None
    outbox.put([Ended(task, decision)], lambda _ready: ())
    assert _finished(failover, process_id) == ("start",)
    failover.lose_primary()
    assert _finished(failover, process_id) == (), "the apply was not lost: nothing was tried"
    outbox.flush()
    (left,) = failover.finished("once")
    assert left.recovery_time is not None
    failover.overdue("decisions")
    failover.world.bring_to_end(process_id)
    assert failover.app.result(process_id, timeout=5) == "a word"


def _finished(failover: Failover, process_id: str) -> tuple[str, ...]:
    graph = failover.world.store.graphs.get(process_id)
    assert graph is not None
    return graph.finished


@pytest.mark.soak
def test_a_claim_that_goes_back_to_who_is_gone_is_requeued_once_more(failover: Failover) -> None:
    """A pool process ended one task, and died in another; its parent was told of that once."""

    @failover.app.process()
    def idle() -> None: ...

    store, claims = failover.world.store, []
    for _ in range(2):
        failover.world.start(idle)
    for document in store.database["decisions"].find():
        claims.append(single.claim(store, "idle", document["_id"], document["pass"], "mortal#1", 60))
    ended, lost = claims
    assert ended is not None and lost is not None

    def states() -> list[str]:
        found = [store.decisions.get(claim.id) for claim in (ended, lost)]
        return [str(decision.state) for decision in found if decision is not None]

    failover.stop_replication()
    outcome = Outcome(pass_key=ended.pass_key or "", value="null")
    options: Any = {"accept_first": True, "worker": "mortal#1", "apply_timeout": 60}
    finishing = Background(lambda: single.finish(store, ended, outcome, (), **options))
    wait_until(lambda: states()[0] == "finished", 10, "the primary's word")
    rescue = Rescue(failover.app)
    rescue.gone("mortal#1")
    for _ in range(2):
        assert rescue.run_once() == {"mortal#1"}, "it is forgotten, and no majority has what was done"
    assert states() == ["finished", "queued"]
    failover.lose_primary()
    assert finishing.over(20)
    assert states() == ["working", "working"], "nothing was taken back: nothing was tried"
    wait_until(lambda: not rescue.run_once(), 10, "an end of looking")
    assert states() == ["queued", "queued"]


def test_what_can_not_be_restored_yet_is_not_given_up(failover: Failover) -> None:
    """Its parent's decision, which has all that it takes, is on its way to the majority."""

    @failover.app.actor()
    def echo(word: str) -> str:
        return word

    @failover.app.process()
    def once() -> Any:
        return echo.schedule("a word")

    with by_message_only():
        process_id = failover.world.start(once)
        failover.world.take_one("once")
    store, database = failover.world.store, failover.world.store.database
    wait_until(lambda: len(failover.world.decisions(process_id)) == 2, 10, "a majority that has the child")
    (child,) = failover.world.decisions(process_id).keys() - {"start"}
    parent = {"_id": f"{process_id}/start"}
    whole = database["decisions"].find_one(parent)
    assert whole is not None
    database["decisions"].update_one(parent, {"$set": {"state": "waiting"}, "$unset": {"outcome": "", "children": ""}})
    database["tasks"].delete_one({"_id": f"{process_id}/{child}"})
    failover.stop_replication()
    current(database["decisions"]).replace_one(parent, whole)
    wait_until(lambda: _idle(failover, process_id) > 1, 10, "a graph that nobody is at work on")
    failover.overdue("graphs")
    scanning = Background(GraphScanner(failover.app.resources, failover.app.outbox).run_once)
    wait_until(lambda: scanning.over(0) or failover.world.process(process_id).state != "running", 20, "a look")
    graph = store.graphs.get(process_id)
    assert graph is not None and graph.failed == {} and failover.world.process(process_id).state == "running"
    failover.nodes.resume_replication()
    failover.world.bring_to_end(process_id)
    assert failover.app.result(process_id, timeout=5) == "a word"


def _idle(failover: Failover, process_id: str) -> float:
    graph = failover.world.store.graphs.get(process_id)
    assert graph is not None and graph.touched_at is not None
    return (failover.world.store.now() - graph.touched_at).total_seconds()


def test_who_asks_for_what_is_not_there_is_told_in_time(failover: Failover) -> None:
    """While no majority answers nobody can say that there is no such process."""
    failover.stop_replication()
    asking = Background(lambda: failover.app.result(new_process_id(), timeout=0.1))
    assert asking.over(10)
    assert isinstance(asking.error, ResultTimeout)
    looking = Background(lambda: failover.world.store.processes.find_committed(new_process_id()))
    assert looking.over(20)
    assert isinstance(looking.error, StoreTimeout)
    failover.nodes.resume_replication()
    failover.replicated()
    with pytest.raises(ProcessNotFound):
        failover.app.result(new_process_id(), timeout=0)


def test_a_large_value_that_a_majority_does_not_have_yet_is_waited_for(failover: Failover) -> None:
    """Its size was told by another primary: it is there, and nothing is lost."""

    @failover.app.process()
    def idle() -> None: ...

    failover.world.start(idle)
    store = failover.world.store
    (document,) = store.database["decisions"].find()
    failover.stop_replication()
    finished = {"state": "finished", "outcome": {"pass": document["pass"], "value": "1"}}
    current(store.database["decisions"]).update_one({"_id": document["_id"]}, {"$set": finished})
    reading = Background(lambda: dict(store.decisions.values({document["_id"]: document["pass"]})))
    assert not reading.over(0.3)
    failover.nodes.resume_replication()
    assert reading.over(20)
    assert reading.result == {document["_id"]: "1"}


def test_of_a_claim_that_a_majority_does_not_have_yet_nothing_is_concluded(failover: Failover) -> None:
    """No slot is freed upon what is older than its claim."""
    store = failover.world.store
    key, held = f"{new_process_id()}/start", new_pass()
    decision = Decision(id=key, actor="render", state=DecisionState.QUEUED, pass_key=held, recovery_time=store.now())
    failover.stop_replication()
    current(store.database["decisions"]).insert_one(to_document(decision))
    claimed = single.claim(store, "render", key, held, "w#1", 60)
    assert claimed is not None
    claim = Claim(key, held, claimed.attempts)
    looking = Background(lambda: store.hung.fates([claim]))
    assert looking.over(10) and looking.result == {claim: Fate.UNSEEN}, looking.error
    failover.nodes.resume_replication()
    failover.replicated()
    assert store.hung.fates([claim]) == {claim: Fate.HELD}
