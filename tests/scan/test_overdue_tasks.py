"""The Decision scanner against time, workers and itself: what is overdue is brought on once, and whatever came
between its look and its write wins."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier, Event
from typing import Any

import pytest

from recovery.records import ActorPreferences, Decision, DecisionState, Outcome, ProcessState
from recovery.rules import Rule
from recovery.scan import DecisionScanner, rescue
from recovery.scan.lost_messages import LostMessages
from recovery.scan.scanner import Page
from recovery.settings import Settings
from recovery.store import Finished
from tests.faults import Died
from tests.queues import polled_and_empty
from tests.scan.making import DAY, SCANNERS, after_find, overdue, process_of, register, scanner, start_of
from tests.store.writing import contents, is_close, put
from tests.waiting import wait_until
from tests.world import World, arguments

QUEUED, WORKING, FINISHED = DecisionState.QUEUED, DecisionState.WORKING, DecisionState.FINISHED


@pytest.fixture(autouse=True)
def add(world: World) -> Any:
    return world.app.process("add")(lambda: "added")


def get(world: World, key: str = start_of(0)) -> Decision:
    found = world.store.decisions.get(key)
    assert found is not None
    return found


def messages(world: World) -> list[list[str]]:
    """[decision, pass] of each message in the queue `add`."""
    texts: Any = world.redis.lrange("add", 0, -1)
    return [arguments(json.loads(text)) for text in texts]


def test_a_named_result(world: World) -> None:
    overdue(world, WORKING, 3)
    result = scanner(world, "decisions").run_once()
    assert (result.scanner, result.looked_at, result.repaired) == ("decisions", 3, {Rule.WORK_TIMEOUT: 3})
    assert (result.error, 0 < result.seconds < 10) == (None, True)
    for key, document in contents(world.store, "decisions").items():
        assert (document["state"], document["timeouts"], "worker" in document) == ("queued", 1, False)
        assert [key, document["pass"]] in messages(world)
    assert scanner(world, "decisions").run_once().repaired == {}


@pytest.mark.parametrize(("seconds", "runs"), [(60.0, 1), (0.0, 6)], ids=["fast pages", "pages slower than a run"])
def test_what_falls_overdue_in_a_storm_does_not_wait_for_its_end(emptied: Settings, seconds: float, runs: int) -> None:
    # However slow the machine is, nothing that was requeued is overdue again before the scan has ended.
    world = World(emptied, message_timeout=600.0)
    world.app.process("add")(lambda: "added")
    storm = [decision.id for decision in overdue(world, WORKING, 10)]
    late = Decision(
        id="q/start", actor="add", state=WORKING, pass_key="old", worker="w#1", recovery_time=world.store.now()
    )
    put(world.store, late)
    register(world, [late])
    one = DecisionScanner(world.app.resources, world.app.outbox)
    one.page, find, pages = 3, one.find, list[list[str]]()

    def noted() -> Page[Decision]:
        found = find()
        pages.append([decision.id for decision in found.items])
        return found

    one.find = noted  # type: ignore[method-assign]
    world.tell()
    results = [one.run_once(seconds) for _ in range(runs)]
    assert sum(result.repaired[Rule.WORK_TIMEOUT] for result in results) == 11
    assert [result.more for result in results] == [True] * (runs - 1) + [False]
    assert late.id not in pages[0], "the longest overdue come first"
    assert late.id == pages[1][0]
    assert sorted(key for page in pages for key in page) == sorted([*storm, late.id])


def test_a_scanner_ends_its_run_when_others_have_requeued_its_page(world: World) -> None:
    """They go on with the rest. It would only be in their way."""
    made = overdue(world, WORKING, 9)
    world.tell()
    one, other = (DecisionScanner(world.app.resources, world.app.outbox) for _ in range(2))
    one.page = 3
    after_find(one, lambda: world.store.requeues.timed_out([decision.id for decision in made[:3]], "others"))
    result = one.run_once()
    assert (result.looked_at, result.repaired, result.more, result.error) == (3, {}, False, None)
    assert other.run_once().repaired == {Rule.WORK_TIMEOUT: 6}


def test_tasks_that_wait_for_their_turn_end_no_run(world: World) -> None:
    """The actor's pace has postponed a whole page; nobody else is at work."""
    world.app.resources.store.actors.save([ActorPreferences(id="add", requeue_rate=0.001)])
    overdue(world, WORKING, 9)
    one = DecisionScanner(world.app.resources, world.app.outbox)
    one.page = 3
    world.store.preferences.invalidate()
    result = one.run_once()
    assert (result.looked_at, result.repaired) == (9, {Rule.WORK_TIMEOUT: 1})


def test_ten_at_once_requeue_each_once(emptied: Settings) -> None:
    """Ten scanners over the same two thousand: every one is requeued by one of them, and has one message."""
    # However slow the machine is, nothing that was requeued is overdue again before all scans have ended.
    world = World(emptied, message_timeout=600.0)
    world.app.process("add")(lambda: "added")
    overdue(world, WORKING, 2000)
    barrier = Barrier(10)

    def scan(_: int) -> int:
        one = DecisionScanner(world.app.resources, world.app.outbox)
        one.page = 150
        barrier.wait()
        result = one.run_once()
        assert result.error is None
        assert set(result.repaired) <= {Rule.WORK_TIMEOUT}
        return result.repaired[Rule.WORK_TIMEOUT]

    world.tell()
    with ThreadPoolExecutor(10) as pool:
        requeued = sum(pool.map(scan, range(10)))
    assert requeued == 2000
    documents = contents(world.store, "decisions")
    assert {document["timeouts"] for document in documents.values()} == {1}
    assert sorted(messages(world)) == sorted([key, document["pass"]] for key, document in documents.items())


def test_a_heartbeat_between_look_and_write_wins(world: World) -> None:
    overdue(world, WORKING, 2)
    one = scanner(world, "decisions")
    after_find(one, lambda: world.store.decisions.extend(start_of(0), "old", 60))
    assert one.run_once().repaired == {Rule.WORK_TIMEOUT: 1}
    alive = get(world)
    assert (alive.state, alive.pass_key, alive.timeouts) == (WORKING, "old", 0)
    assert [key for key, _ in messages(world)] == [start_of(1)]


@pytest.mark.parametrize("settings", [{}, {"max_work_timeouts": 1}, {"restart_after_work_timeout": False}])
def test_a_result_between_look_and_write_wins(world: World, settings: dict[str, Any]) -> None:
    world.app.actors.clear()
    world.app.process("add", **settings)(lambda: "added")
    (decision,) = overdue(world, WORKING)
    one = scanner(world, "decisions")

    def finish() -> None:
        ended = decision.evolve(outcome=Outcome(pass_key="old", value='"first"'))
        assert world.store.decisions.finish([ended], accept_first=False, worker="w#1", apply_timeout=60)

    after_find(one, finish)
    result = one.run_once()
    assert (result.looked_at, result.repaired) == (1, {})
    finished = get(world)
    assert finished.state is FINISHED
    assert finished.outcome is not None
    assert finished.outcome.value == '"first"'
    assert messages(world) == []
    assert world.process(process_of(0)).state is ProcessState.RUNNING


def test_a_claim_between_look_and_write_wins(world: World) -> None:
    """Its message was late, not lost."""
    overdue(world, QUEUED)
    world.store.queues.polled({"add": world.store.now()})
    one = scanner(world, "decisions")
    after_find(one, lambda: world.store.decisions.claim("add", {start_of(0): "old"}, "w#1", 60))
    assert one.run_once().repaired == {}
    assert (get(world).state, get(world).pass_key) == (WORKING, "old")


@pytest.mark.parametrize(
    ("settings", "timeouts", "told"),
    [
        ({"max_work_timeouts": 3}, 2, "add lost 3 attempts (max_work_timeouts)"),
        (
            {"restart_after_work_timeout": False, "worker_timeout": 7},
            0,
            "add brought no result within 7 s, and restart_after_work_timeout is off",
        ),
    ],
)
def test_an_attempt_too_many_breaks_the_process(
    world: World, settings: dict[str, Any], timeouts: int, told: str
) -> None:
    world.app.actors.clear()
    world.app.process("add", **settings)(lambda: "added")
    overdue(world, WORKING, timeouts=timeouts)
    assert scanner(world, "decisions").run_once().repaired == {Rule.WORK_TIMEOUT: 1}
    process = world.process(process_of(0))
    assert process.state is ProcessState.BROKEN
    assert process.error is not None
    assert (process.error.kind, process.error.message, process.error.actor) == ("WorkTimeout", told, "add")
    ended = get(world)
    assert (ended.state, ended.timeouts, ended.recovery_time) == (FINISHED, timeouts + 1, None)
    assert messages(world) == []


def test_a_task_that_always_hangs_ends_after_so_many_attempts(world: World) -> None:
    """From the first attempt to the broken process, with real claims whose time is up at once."""
    world.app.actors.clear()

    @world.app.process("add", worker_timeout=0.001, max_work_timeouts=3)
    def hangs() -> None:
        raise Died  # as if the worker was killed: the attempt just ends

    process_id = world.start(hangs)
    attempts: list[str] = []

    def ended() -> bool:
        try:
            world.pump()
        except Died:
            attempts.append("lost")
        scanner(world, "decisions").run_once()
        return world.process(process_id).state is ProcessState.BROKEN

    wait_until(ended, 10, "the process to break")
    assert len(attempts) == 3


def test_a_push_that_failed_is_a_lost_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compare-and-set is done, the message is not there: found when the queue is polled and empty."""
    overdue(world, WORKING, 2)
    with monkeypatch.context() as patched:
        patched.setattr(type(world.app.resources.broker), "push", lambda *_: 0)
        assert scanner(world, "decisions").run_once().repaired == {Rule.WORK_TIMEOUT: 2}
    assert messages(world) == []
    lost = get(world)

    def found() -> bool:
        world.store.queues.polled({"add": None})
        return scanner(world, "decisions").run_once().repaired == {Rule.MESSAGE_LOST: 2}

    wait_until(found, 10, "the lost messages")
    again = get(world)
    assert again.pass_key != lost.pass_key
    assert [start_of(0), again.pass_key] in messages(world)
    assert (again.timeouts, len(messages(world))) == (1, 2)


@pytest.mark.parametrize("others", [QUEUED, WORKING], ids=["all lost", "some working, overdue for longer"])
def test_redis_is_lost_and_all_messages_are_found_in_one_run(world: World, others: DecisionState) -> None:
    """What the first page pushes does not hide from the others that the queue was empty; nor from another scanner."""
    made = overdue(world, QUEUED, 10)
    past = world.store.now() - 2 * DAY
    ids = [decision.id for decision in made]
    world.store.database["decisions"].update_many(
        {"_id": {"$in": ids[:4]}}, {"$set": {"state": others.value, "recoveryTime": past}}
    )
    # These come due after the scan; by then the queue is full of what the scan pushed. They lost theirs too often to be
    # looked at before.
    later = {"recoveryTime": world.store.now() + timedelta(seconds=1), "losses": 9}
    world.store.database["decisions"].update_many({"_id": {"$in": ids[8:]}}, {"$set": later})
    polled_and_empty(world.store, "add")
    first, second = scanner(world, "decisions"), scanner(world, "decisions")
    first.page = 3
    assert first.run_once().repaired.total() == 8
    assert len(messages(world)) == 8
    world.store.database["decisions"].update_many({"_id": {"$in": ids[8:]}}, {"$set": {"recoveryTime": past}})
    assert second.run_once().repaired == {Rule.MESSAGE_LOST: 2}
    assert sorted(messages(world)) == sorted([key, get(world, key).pass_key] for key in ids)


def test_what_was_pushed_again_waits_in_its_queue_and_is_not_pushed_once_more(world: World) -> None:
    """However long it waits: only a queue that is found empty once more proves anything of it."""
    overdue(world, QUEUED, 5)
    polled_and_empty(world.store, "add")
    one = scanner(world, "decisions")
    one.page = 2
    assert one.run_once().repaired == {Rule.MESSAGE_LOST: 5}
    pushed = messages(world)
    margin = timedelta(seconds=world.settings.message_timeout)
    wait_until(lambda: world.store.now() > get(world).queued_at + 3 * margin, 10, "the messages to grow old")  # type: ignore[operator]
    world.store.queues.polled({"add": None})
    world.store.database["decisions"].update_many({}, {"$set": {"recoveryTime": world.store.now() - DAY}})
    result = one.run_once()
    assert (result.looked_at, result.repaired) == (5, {})
    assert messages(world) == pushed
    world.redis.flushdb()

    def found() -> bool:
        world.store.queues.polled({"add": None})
        return one.run_once().repaired == {Rule.MESSAGE_LOST: 5}

    wait_until(found, 10, "the lost messages")
    assert len(messages(world)) == 5


def test_what_a_worker_has_just_taken_is_not_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had waited for long, and so had its queue not been empty; another slot looks before this one claims it."""
    overdue(world, QUEUED, 3)
    world.store.queues.polled({"add": None})
    monkeypatch.setattr(Settings, "claim_margin", 100.0)
    first, second, whole = (scanner(world, name) for name in ("decisions", "decisions", "processes"))
    for one in (first, second, whole, first):
        due = {"recoveryTime": world.store.now() - DAY}
        for collection in ("decisions", "processes"):
            world.store.database[collection].update_many({}, {"$set": due})
        assert not one.run_once().repaired
    assert messages(world) == []
    monkeypatch.setattr(Settings, "claim_margin", 0.0)
    assert second.run_once().repaired == {Rule.MESSAGE_LOST: 3}, "nobody ever claimed them"


def test_while_a_queue_lags_nothing_is_pushed_again(world: World) -> None:
    overdue(world, QUEUED, 5)
    world.app.resources.broker.push(world.store.requeues.requeue_message_lost([start_of(0)], world.store.now(), "new"))
    past = world.store.now() - DAY
    world.store.database["decisions"].update_many({}, {"$set": {"recoveryTime": past, "queuedAt": past}})
    world.store.queues.polled({"add": None})
    result = scanner(world, "decisions").run_once()
    assert (result.looked_at, result.repaired) == (5, {})
    assert len(messages(world)) == 1
    looked_at = get(world).recovery_time
    assert looked_at is not None
    assert DAY * 0.8 < looked_at - world.store.now() < DAY * 1.2, "looked at again, however old it is"


@pytest.mark.parametrize("state", [QUEUED, WORKING, DecisionState.DELAYED])
def test_a_missing_deadline_is_stamped_and_the_record_repaired(world: World, state: DecisionState) -> None:
    """Another program wrote it; the validators were passed by."""
    overdue(world, state, 2, recovery_time=None)
    world.store.queues.polled({"add": world.store.now()})
    one = scanner(world, "decisions")
    rule = {QUEUED: Rule.MESSAGE_LOST, WORKING: Rule.WORK_TIMEOUT, DecisionState.DELAYED: Rule.DUE}[state]
    assert one.run_once().repaired == {Rule.DEADLINE_MISSING: 2, rule: 2}
    assert len(messages(world)) == 2


def test_queued_without_a_time_is_pushed_again(world: World) -> None:
    overdue(world, QUEUED, queued_at=None)
    assert scanner(world, "decisions").run_once().repaired == {Rule.MESSAGE_LOST: 1}
    assert len(messages(world)) == 1


def test_finished_and_not_applied(world: World) -> None:
    overdue(world, FINISHED, outcome=Outcome(pass_key="old", value='"added"', finished_at=world.store.now() - DAY))
    assert scanner(world, "decisions").run_once().repaired == {Rule.DECISION_NOT_APPLIED: 1}
    assert world.process(process_of(0)).result == '"added"'
    assert get(world).recovery_time is None


def test_applied_and_only_the_word_is_missing(world: World) -> None:
    """Nothing was wrong: looked at, not repaired, and at rest."""
    (decision,) = overdue(world, FINISHED, outcome=Outcome(pass_key="old", value='"added"'))
    world.store.graphs.apply({process_of(0): (0, [Finished("start", {}, ())])})
    result = scanner(world, "decisions").run_once()
    assert (result.looked_at, result.repaired) == (1, {})
    assert get(world, decision.id).recovery_time is None


UNTOUCHABLE: dict[str, dict[str, Any]] = {
    # Another program's: no rule says what to do about a waiting task with a deadline.
    "waiting with a deadline": {"state": DecisionState.WAITING},
    # Damaged: what was decided can't be applied without the task.
    "finished, its task gone": {"state": FINISHED, "outcome": Outcome(pass_key="old", value="1")},
}


@pytest.mark.parametrize("what", UNTOUCHABLE)
def test_a_page_full_of_what_cant_be_brought_on_hides_nothing(world: World, what: str) -> None:
    """The longest overdue come first: these are put off, and the run ends."""
    past = world.store.now() - 2 * DAY
    odd = [Decision(id=f"odd{n}/start", actor="add", recovery_time=past, **UNTOUCHABLE[what]) for n in range(5)]
    put(world.store, *odd)
    overdue(world, WORKING, 3)
    one = scanner(world, "decisions")
    one.page = 5
    result = one.run_once()
    assert (result.looked_at, result.repaired) == (8, {Rule.WORK_TIMEOUT: 3})
    left = {decision.id: get(world, decision.id) for decision in odd}
    assert all(is_close(d.recovery_time, world.store.now() + timedelta(seconds=0.3)) for d in left.values())
    assert {d.state for d in left.values()} == {odd[0].state}


def test_register_gives_whole_processes(world: World) -> None:
    """What these tests start from is healthy but for what they make overdue."""
    past = world.store.now() - DAY
    decision = Decision(id="p/start", actor="add", state=QUEUED, queued_at=past, recovery_time=past + 3 * DAY)
    put(world.store, decision)
    register(world, [decision])
    for name in ("decisions", "graphs", "processes"):
        assert scanner(world, name).run_once().looked_at == 0


@pytest.mark.parametrize("stranger", [0, 1], ids=["an empty queue", "a message of another"])
@pytest.mark.parametrize(
    ("kind", "state"), [("decisions", QUEUED), ("decisions", WORKING), ("graphs", QUEUED), ("rescue", WORKING)]
)
def test_nothing_is_pushed_before_it_is_known_that_redis_lost_its_data(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, state: DecisionState, stranger: int
) -> None:
    """What a repair pushed before would be requeued for the same loss once more. It is seen in the middle of a run."""
    made = overdue(world, state, 9)
    wait = [one.id for one in made[4:]]
    past, graphs = world.store.now() - DAY, world.store.database["graphs"]
    graphs.update_many({}, {"$set": {"recoveryTime": past, "touchedAt": past}})
    graphs.delete_many({"_id": {"$in": [one.process_id for one in made[4:]]}})
    later = {"state": "queued", "recoveryTime": world.store.now() + DAY}
    world.store.database["decisions"].update_many({"_id": {"$in": wait}}, {"$set": later, "$unset": {"worker": True}})
    one = scanner(world, "decisions" if kind == "rescue" else kind)
    one.page = 2
    world.store.queues.polled({"add": None})
    world.store.queues.served(["another"])  # it was noted once that Redis has all
    pushed, repair, pages = Event(), one.repairer.repair, LostMessages.pages
    world.redis.flushdb()
    if stranger:
        world.redis.lpush("add", "{}")

    def first(findings: Any, around: Any) -> Any:
        try:
            return repair(findings, around)
        finally:
            pushed.set()

    def then(lost: LostMessages, *words: Any) -> Any:
        if kind == "decisions":
            assert pushed.wait(10), "a page is repaired while this one is read"
        yield from pages(lost, *words)

    monkeypatch.setattr(one.repairer, "repair", first)
    monkeypatch.setattr(LostMessages, "pages", then)
    if kind == "rescue":
        rescue(world.app.resources, one.repairer, ["w"])
    else:
        one.run_once()
    losses = {one.id: 1 if state is QUEUED or one.id in wait else None for one in made}

    def each_once() -> bool:
        """By a look or two: that a queue is empty is believed a moment after it was seen."""
        SCANNERS["decisions"](world).run_once()
        found = contents(world.store, "decisions")
        return {key: document.get("losses") for key, document in found.items()} == losses

    wait_until(each_once, 5, f"losses {losses}")
    assert world.redis.llen("add") == len(made) + stranger
