"""Lost messages are found by what is known of their queue, whatever the deadlines; and looking costs what is lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from recovery.engine import Resources
from recovery.queue import Kept
from recovery.queue.coordination import KEPT_KEY
from recovery.records import ActorPreferences, Decision, DecisionState, QueueStatistics, Worker
from recovery.repair import RedisLoss
from recovery.scan import lost_messages
from recovery.scan.lost_messages import LostMessages
from recovery.settings import Settings
from recovery.stack.server_process import HOST, free_port
from recovery.store import Store, layout
from recovery.store.lifecycle.queues import Queues
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.queues import polled_and_empty
from tests.store.writing import put

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def noted(resources: Resources) -> None:
    """Redis has lost nothing, and that is known."""
    Kept(resources.settings.broker_url).note()
    resources.store.queues.served(["another"])


@pytest.fixture
def resources(emptied: Settings) -> Resources:
    made = Resources.connect(emptied)
    layout.create(made.store.database)
    noted(made)
    return made


@pytest.fixture
def store(resources: Resources) -> Store:
    return resources.store


@pytest.fixture
def now(store: Store) -> datetime:
    return store.now()


def queued(store: Store, queued_at: datetime, *names: str, losses: int | None = None, deadline: datetime) -> None:
    put(store, *(
        Decision(
            id=f"p/{name}", actor="add", state=DecisionState.QUEUED, queued_at=queued_at, recovery_time=deadline,
            losses=losses,
        )
        for name in names
    ))  # fmt: skip


def taken(store: Store, moment: datetime) -> None:
    told = QueueStatistics(id="add", polled_at=store.now(), taken_queued_at=moment)
    store.workers.beat(Worker(id="w", name="w", host="", pid=1, pid_started=1, polls=(told,)), 60)


def found(lost: LostMessages, size: int = 100) -> list[str]:
    names = [decision.id.removeprefix("p/") for page in lost.pages(size) for decision in page.records]
    lost.ended(well=True)
    return names


def test_what_was_queued_before_one_that_was_taken(resources: Resources, store: Store, now: datetime) -> None:
    resources.broker._redis.lpush("add", "some message")
    queued(store, now - 60 * SECOND, "old", "another", deadline=now + DAY)
    queued(store, now - 31 * SECOND, "close", deadline=now + DAY)
    queued(store, now - 10 * SECOND, "young", deadline=now + DAY)
    lost = LostMessages(resources)
    assert found(lost) == [], "nothing is known"
    taken(store, now - 30 * SECOND)
    assert sorted(found(lost)) == ["another", "old"]


def test_all_of_a_queue_that_is_polled_and_empty(resources: Resources, store: Store, now: datetime) -> None:
    queued(store, now - 60 * SECOND, "old", deadline=now + 5 * SECOND)
    queued(store, now - 5 * SECOND, "young", deadline=now + 5 * SECOND)
    queued(store, now - SECOND, "on its way", deadline=now + 5 * SECOND)
    polled_and_empty(store, "add")
    assert found(LostMessages(resources)) == ["old", "young"]


@pytest.mark.parametrize("message_timeout", [0.1, 1.0, 2.5])
def test_what_was_requeued_a_moment_ago_is_not_lost(
    resources: Resources, store: Store, now: datetime, message_timeout: float
) -> None:
    """However short the message timeout is: its page is still being pushed."""
    settings = resources.settings.model_copy(update={"message_timeout": message_timeout})
    queued(store, now - 0.6 * SECOND, "old", deadline=now + DAY)
    queued(store, now - 0.4 * SECOND, "requeued", deadline=now + DAY)
    resources.broker._redis.lpush("add", "some message")
    taken(store, now)
    assert found(LostMessages(replace(resources, settings=settings))) == ["old"]


def test_what_was_just_taken_from_it_may_be_in_hand(
    resources: Resources, store: Store, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks later believes it, whoever looked first, and though the queue is full by then."""
    queued(store, now - 60 * SECOND, "old", deadline=now + DAY)
    store.queues.polled({"add": None})
    monkeypatch.setattr(Settings, "claim_margin", 100.0)
    assert found(LostMessages(resources)) == found(LostMessages(resources)) == []
    resources.broker._redis.lpush("add", "some message")
    monkeypatch.setattr(Settings, "claim_margin", 0.0)
    assert found(LostMessages(resources)) == ["old"]


def test_a_look_that_takes_long_proves_nothing(
    resources: Resources, store: Store, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the queue lacks when Redis answers at last was taken just then, perhaps."""
    queued(store, now - 60 * SECOND, "old", deadline=now + DAY)
    store.queues.polled({"add": None})
    monkeypatch.setattr(Settings, "claim_margin", 1e-9)  # no answer is as quick
    for _ in range(3):
        assert found(LostMessages(resources)) == []
    assert store.queues.all()["add"].seen_empty_at is None


def test_of_a_queue_that_goes_well_nothing_is_kept(resources: Resources, store: Store, now: datetime) -> None:
    """It is empty at each second look, and all that waits was queued just now."""
    queued(store, now - 0.5 * SECOND, "young", deadline=now + DAY)
    store.queues.polled({"add": None})
    assert found(LostMessages(resources)) == []
    assert store.queues.all()["add"].seen_empty_at is None
    queued(store, now - 5 * SECOND, "old", deadline=now + DAY)
    assert found(LostMessages(resources)) == []
    assert store.queues.all()["add"].seen_empty_at is not None


def test_what_was_lost_often_is_left_to_its_deadline(resources: Resources, store: Store, now: datetime) -> None:
    queued(store, now - 60 * SECOND, "often", losses=6, deadline=now + 200 * SECOND)
    queued(store, now - 60 * SECOND, "seldom", losses=5, deadline=now + 200 * SECOND)
    queued(store, now - 60 * SECOND, "waited since", losses=6, deadline=now + DAY)
    queued(store, now - 60 * SECOND, "overdue anyway", deadline=now - SECOND)
    polled_and_empty(store, "add")
    assert sorted(found(LostMessages(resources))) == ["seldom", "waited since"]


@pytest.mark.parametrize("why", ["blocked", "pace"])
def test_of_an_actor_that_is_held_back(resources: Resources, store: Store, now: datetime, why: str) -> None:
    store.actors.save([ActorPreferences(id="add", requeue_rate=5.0 if why == "pace" else 0.0)])
    if why == "blocked":
        store.actors.block("add")
    queued(store, now - 60 * SECOND, "old", deadline=now + DAY)
    polled_and_empty(store, "add")
    assert found(LostMessages(resources)) == []


def test_who_ends_before_the_last_page_goes_on_with_the_rest(resources: Resources, store: Store, now: datetime) -> None:
    clock = Clock()
    for number in range(10):
        queued(store, now - (60 - number) * SECOND, str(number), deadline=now + DAY)
    polled_and_empty(store, "add")
    lost = LostMessages(resources, clock)
    pages = lost.pages(3)
    first = [decision.id for decision in next(pages).records]
    next(pages)  # read ahead, and not repaired
    assert first == ["p/0", "p/1", "p/2"]
    store.database["decisions"].update_many({"_id": {"$in": first}}, {"$set": {"queuedAt": now + DAY}})
    clock.now += 2 * lost_messages.AGAIN_FOR
    polled_and_empty(store, "add")
    assert found(lost, 3) == [str(number) for number in range(3, 10)]


def test_a_date_at_the_beginning_of_the_calendar_stops_nobody(
    resources: Resources, store: Store, now: datetime
) -> None:
    """Whoever may add decisions may add one that was queued then, and there is no moment before it."""
    queued(store, datetime.min.replace(tzinfo=UTC), "first of all", deadline=now + DAY)
    queued(store, now - 60 * SECOND, "old", deadline=now + DAY)
    polled_and_empty(store, "add")
    assert found(LostMessages(resources), 1) == ["first of all", "old"]
    cut_off = LostMessages(resources)
    next(cut_off.pages(1))
    assert "old" in found(cut_off, 1), "and so does who goes on from there"


def test_one_that_another_scanner_postponed_meanwhile(resources: Resources, store: Store, now: datetime) -> None:
    """By what it knew before. A range is looked through again for a while, and then is behind us."""
    clock = Clock()
    lost = LostMessages(resources, clock)
    queued(store, now - 60 * SECOND, "old", deadline=now + DAY)
    polled_and_empty(store, "add")
    assert found(lost) == ["old"]
    for passed, again in [(1.0, ["old"]), (lost_messages.AGAIN_FOR - 2, ["old"]), (5.0, [])]:
        clock.now += passed
        polled_and_empty(store, "add")
        assert found(lost) == again, passed
    assert found(LostMessages(resources, clock)) == ["old"], "who begins to scan looks at all"


def test_it_costs_what_is_lost(resources: Resources, store: Store, now: datetime) -> None:
    """Not what waits."""
    resources.broker._redis.lpush("add", "some message")
    queued(store, now - 60 * SECOND, "old", deadline=now + DAY)
    queued(store, now - 10 * SECOND, *(f"young {number}" for number in range(2000)), deadline=now + DAY)
    taken(store, now - 30 * SECOND)
    store.database.command("profile", 2)
    assert len(found(LostMessages(resources))) == 1
    store.database.command("profile", 0)
    seen = list(store.database["system.profile"].find({"ns": store.database["decisions"].full_name}))
    assert sum(one.get("docsExamined", 0) for one in seen) <= 2, seen
    assert sum(one.get("keysExamined", 0) for one in seen) <= 20, seen


def test_redis_lost_its_data(resources: Resources, store: Store, now: datetime) -> None:
    """What was queued a moment before is found as well, and what is queued since is not."""
    resources.broker._redis.flushdb()
    resources.broker._redis.lpush("add", "some message")
    queued(store, now, "just now", "and another", deadline=now + DAY)
    lost = LostMessages(resources)
    assert len(found(lost)) == 2
    queued(store, store.now() + SECOND, "since", deadline=now + DAY)
    assert found(lost) == found(LostMessages(resources)) == ["just now", "and another"]
    resources.broker._redis.flushdb()
    assert "since" not in found(LostMessages(resources)), "it was queued by a clock that was ahead"
    assert store.queues.all()["add"].lost_before is not None


@pytest.mark.parametrize("others", [0, 3])
def test_a_redis_that_has_all_and_lacks_the_key(resources: Resources, store: Store, now: datetime, others: int) -> None:
    """Of a version that wrote none, or somebody removed it; or nothing was queued when it was emptied."""
    resources.broker._redis.flushdb()
    resources.broker._redis.lpush("add", *["some message"] * (2 + others))
    queued(store, now, "one", "two", deadline=now + DAY)
    assert found(LostMessages(resources)) == []
    assert Kept(resources.settings.broker_url).is_noted()
    resources.broker._redis.delete("add")
    assert found(LostMessages(resources)) == [], "one queue that is gone is not all data"


def test_a_redis_that_is_served_for_the_first_time(resources: Resources, store: Store, now: datetime) -> None:
    """Or by an earlier version until now. What is queued just now may be on its way."""
    resources.broker._redis.flushdb()
    store.database["queues"].delete_many({})
    queued(store, now, "one", deadline=now + DAY)
    assert found(LostMessages(resources)) == []
    assert Kept(resources.settings.broker_url).is_noted()
    resources.broker._redis.flushdb()
    assert found(LostMessages(resources)) == ["one"]


def test_where_nothing_waits_nothing_is_noted(resources: Resources, store: Store, now: datetime) -> None:
    """Of no queue it could be told then that Redis has all, and the first loss would count as the first time."""
    resources.broker._redis.flushdb()
    store.database["queues"].delete_many({})
    RedisLoss(resources).look()
    queued(store, now, "one", deadline=now + DAY)
    RedisLoss(resources).look()
    resources.broker._redis.flushdb()
    assert found(LostMessages(resources)) == ["one"]


def test_who_sees_it_ends_before_it_is_told(
    resources: Resources, store: Store, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    resources.broker._redis.flushdb()
    queued(store, now, "one", deadline=now + DAY)
    lost = LostMessages(resources)
    with monkeypatch.context() as patch:
        patch.setattr(store.queues, "lost", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            found(lost)
    assert len(found(LostMessages(resources))) == 1


@pytest.mark.parametrize("step", ["noted", "told"])
@pytest.mark.parametrize("after", [False, True])
def test_two_serve_it_for_the_first_time(
    resources: Resources, store: Store, now: datetime, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    """The second before or after each of the first one's writes, while a worker has the only message in hand."""
    resources.broker._redis.flushdb()
    store.database["queues"].delete_many({})
    queued(store, now, "one", deadline=now + DAY)
    owner, name = (Kept, "note") if step == "noted" else (Queues, "served")
    real, looked = getattr(owner, name), list[bool]()

    def meanwhile(*args: Any) -> None:
        if looked:
            return real(*args)
        looked.append(True)
        if after:
            real(*args)
        RedisLoss(resources).look()
        return None if after else real(*args)

    monkeypatch.setattr(owner, name, meanwhile)
    RedisLoss(resources).look()
    assert looked and found(LostMessages(resources)) == []
    resources.broker._redis.flushdb()
    assert found(LostMessages(resources)) == ["one"]


@pytest.mark.parametrize("again", ["the same process", "another one"])
def test_who_serves_it_for_the_first_time_is_cut_off(
    resources: Resources, store: Store, now: datetime, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    """Between its two writes. Whoever comes next makes the second, so that the first loss is seen as one."""
    resources.broker._redis.flushdb()
    store.database["queues"].delete_many({})
    queued(store, now, "one", deadline=now + DAY)
    seen = RedisLoss(resources)
    for owner, name in ((Kept, "note"), (Queues, "served")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda *_: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                seen.look()
    (seen if again == "the same process" else RedisLoss(resources)).look()
    resources.broker._redis.flushdb()
    assert found(LostMessages(resources)) == ["one"]


def test_a_failover_takes_back_that_it_is_served(resources: Resources, store: Store, now: datetime) -> None:
    """Whoever told that knows a loss when he sees one."""
    resources.broker._redis.flushdb()
    store.database["queues"].delete_many({})
    queued(store, now, "one", deadline=now + DAY)
    seen = RedisLoss(resources)
    seen.look()
    store.database["queues"].delete_many({})
    resources.broker._redis.flushdb()
    assert found(LostMessages(resources, redis_loss=seen)) == ["one"]


def test_two_see_it(resources: Resources, store: Store, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second, which stood still, takes nothing for lost that the first has queued again."""
    resources.broker._redis.flushdb()
    queued(store, now, "one", deadline=now + DAY)
    first, second = LostMessages(resources), LostMessages(resources)
    real = store.now

    def meanwhile() -> datetime:
        monkeypatch.setattr(store, "now", real)
        assert len(found(first)) == 1
        again = {"queuedAt": "$$NOW", "recoveryTime": now + DAY}
        store.database["decisions"].update_one({"_id": "p/one"}, [{"$set": again}])
        return real()

    monkeypatch.setattr(store, "now", meanwhile)
    assert len(found(second)) == 0
    assert found(LostMessages(resources)) == []


def test_redis_is_away(resources: Resources, store: Store, now: datetime) -> None:
    resources.broker._redis.flushdb()
    queued(store, now, "one", deadline=now + DAY)
    elsewhere = resources.settings.model_copy(update={"broker_url": f"redis://{HOST}:{free_port()}/0"})
    away = replace(resources, settings=elsewhere)
    assert found(LostMessages(away)) == []
    assert len(found(LostMessages(resources))) == 1


def test_a_run_that_failed_is_as_if_it_had_not_been(resources: Resources, store: Store, now: datetime) -> None:
    """Nobody knows what of its last pages was repaired."""
    clock = Clock()
    queued(store, now - 60 * SECOND, "old", deadline=now + DAY)
    lost = LostMessages(resources, clock)
    for well, seen in ((False, 1), (True, 1), (True, 0)):
        polled_and_empty(store, "add")
        assert len(list(lost.pages(100))) == seen
        lost.ended(well=well)
        clock.now += lost_messages.AGAIN_FOR + 1


def test_all_of_it_is_looked_at_every_few_minutes(resources: Resources, store: Store, now: datetime) -> None:
    """A failover has taken back, perhaps, that it was queued again."""
    clock = Clock()
    queued(store, now - 60 * SECOND, "old", deadline=now + DAY)
    lost, seen = LostMessages(resources, clock), list[list[str]]()
    for _ in range(20):
        polled_and_empty(store, "add")
        seen.append(found(lost))
        clock.now += lost_messages.AGAIN_FOR + 1
    assert seen.count([]) >= 15 and 2 <= seen.count(["old"]) <= 5


@pytest.mark.parametrize("damaged", [False, True])
def test_what_can_not_be_repaired_stands_before_nothing_for_ever(
    resources: Resources, store: Store, now: datetime, damaged: bool
) -> None:
    """A run that ended for its time is gone on with, in the next queue as well; then all is looked at again."""
    for number in range(6):
        queued(store, now - (60 - number) * SECOND, f"bad {number}", deadline=now + DAY)
    queued(store, now - 20 * SECOND, "good", deadline=now + DAY)
    put(store, Decision(
        id="p/other", actor="sub", state=DecisionState.QUEUED, queued_at=now - 60 * SECOND, recovery_time=now + DAY,
    ))  # fmt: skip
    if damaged:
        bad = {"q": {"_id": {"$regex": "bad"}}, "u": {"$set": {"eta": "soon"}}, "multi": True}
        store.database.command("update", "decisions", updates=[bad], bypassDocumentValidation=True)
    lost = LostMessages(resources)

    def run(pages: int) -> list[str]:
        polled_and_empty(store, "add", "sub")
        reading = lost.pages(2)
        found = list(islice(reading, pages + 1))[:pages]  # one is read ahead
        del reading  # and with it what is not read to its end
        lost.ended(well=True)
        return [str(one.record if damaged and hasattr(one, "record") else one.id).removeprefix("p/")
                for page in found for one in (*page.damaged, *page.records)]  # fmt: skip

    seen: list[str] = []
    for _ in range(6):
        seen += run(2)
    assert {"good", "other"} <= set(seen)
    assert seen.count("bad 0") >= 2, "nothing of it is behind us"


def test_an_actor_whose_pace_is_set_while_its_tasks_wait(resources: Resources, store: Store, now: datetime) -> None:
    """They are queued again in that pace, by their deadlines; which were as far off as of what lacks nothing."""
    store.actors.save([ActorPreferences(id="add", requeue_rate=5.0)])
    queued(store, now - 60 * SECOND, "far off", deadline=now + DAY)
    queued(store, now - 60 * SECOND, "in pace", deadline=now + 30 * SECOND)
    queued(store, now - SECOND, "young", deadline=now + DAY)
    polled_and_empty(store, "add")
    assert found(LostMessages(resources)) == []
    overdue = next(store.decisions.overdue_pages(10)).records
    assert [one.task_id for one in overdue] == ["far off"]


def test_a_busy_queue_has_lost_nothing(resources: Resources, store: Store, now: datetime) -> None:
    """Some of its messages are in hands just now, where the key alone is gone."""
    queued(store, now, *map(str, range(20)), deadline=now + DAY)
    resources.broker._redis.lpush("add", *["some message"] * 19)
    resources.broker._redis.delete(KEPT_KEY)
    assert found(LostMessages(resources)) == []
    assert Kept(resources.settings.broker_url).is_noted()
