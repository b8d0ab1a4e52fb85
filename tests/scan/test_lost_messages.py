"""Lost messages are found by what is known of their queue, whatever the deadlines; and looking costs what is lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from recovery.engine import Resources
from recovery.queue import Kept
from recovery.records import ActorPreferences, Decision, DecisionState, QueueStatistics, Worker
from recovery.scan import lost_messages
from recovery.scan.lost_messages import LostMessages
from recovery.settings import Settings
from recovery.stack.ports import HOST, free_port
from recovery.store import Store, schema
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.store.writing import put

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def resources(emptied: Settings) -> Resources:
    made = Resources.connect(emptied)
    schema.create(made.store.database)
    Kept(emptied.broker_url).note()
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


def overdue(store: Store) -> set[str]:
    return {decision.id.removeprefix("p/") for decision in next(store.decisions.overdue_pages(100)).records}


def test_what_was_queued_before_one_that_was_taken(resources: Resources, store: Store, now: datetime) -> None:
    resources.broker._redis.lpush("add", "some message")
    queued(store, now - 60 * SECOND, "old", "another", deadline=now + DAY)
    queued(store, now - 31 * SECOND, "close", deadline=now + DAY)
    queued(store, now - 10 * SECOND, "young", deadline=now + DAY)
    lost = LostMessages(resources)
    assert lost.advance() == 0, "nothing is known"
    taken(store, now - 30 * SECOND)
    assert lost.advance() == 2
    assert overdue(store) == {"old", "another"}
    assert lost.advance() == 0


def test_all_of_a_queue_that_is_polled_and_empty(resources: Resources, store: Store, now: datetime) -> None:
    queued(store, now - 60 * SECOND, "old", deadline=now + 5 * SECOND)
    queued(store, now - 5 * SECOND, "young", deadline=now + 5 * SECOND)
    queued(store, now - SECOND, "on its way", deadline=now + 5 * SECOND)
    store.queues.polled({"add": None})
    assert LostMessages(resources).advance() == 2
    assert overdue(store) == {"old", "young"}


def test_what_was_lost_often_is_left_to_its_deadline(resources: Resources, store: Store, now: datetime) -> None:
    queued(store, now - 60 * SECOND, "often", losses=6, deadline=now + 200 * SECOND)
    queued(store, now - 60 * SECOND, "seldom", losses=5, deadline=now + 200 * SECOND)
    queued(store, now - 60 * SECOND, "waited since", losses=6, deadline=now + DAY)
    store.queues.polled({"add": None})
    assert LostMessages(resources).advance() == 2
    assert overdue(store) == {"seldom", "waited since"}


@pytest.mark.parametrize("why", ["blocked", "pace"])
def test_of_an_actor_that_is_held_back(resources: Resources, store: Store, now: datetime, why: str) -> None:
    store.actors.save([ActorPreferences(id="add", requeue_rate=5.0 if why == "pace" else 0.0)])
    if why == "blocked":
        store.actors.block("add")
    queued(store, now - 60 * SECOND, "old", deadline=now + DAY)
    store.queues.polled({"add": None})
    assert LostMessages(resources).advance() == 0


def test_more_than_are_looked_at_at_once(
    resources: Resources, store: Store, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_messages, "AT_ONCE", 3)
    for number in range(10):
        queued(store, now - (60 - number) * SECOND, str(number), deadline=now + DAY)
    store.queues.polled({"add": None})
    lost = LostMessages(resources)
    seen = [lost.advance() for _ in range(4)]
    assert sum(seen) == 10 and seen[0] == 4
    assert len(overdue(store)) == 10


def test_one_that_another_scanner_postponed_meanwhile(resources: Resources, store: Store, now: datetime) -> None:
    """By what it knew before. A range is looked through again for a while, and then is behind us."""
    clock = Clock()
    lost = LostMessages(resources, clock)
    queued(store, now - 60 * SECOND, "old", deadline=now + DAY)
    store.queues.polled({"add": None})
    assert lost.advance() == 1
    for passed, found in [(1.0, 1), (lost_messages.AGAIN_FOR - 2, 1), (5.0, 0)]:
        store.database["decisions"].update_many({}, {"$set": {"recoveryTime": now + DAY}})
        clock.now += passed
        store.queues.polled({"add": None})
        assert lost.advance() == found, passed
    assert LostMessages(resources, clock).advance() == 1, "who begins to scan looks at all"


def test_it_costs_what_is_lost(resources: Resources, store: Store, now: datetime) -> None:
    """Not what waits."""
    resources.broker._redis.lpush("add", "some message")
    queued(store, now - 60 * SECOND, "old", deadline=now + DAY)
    queued(store, now - 10 * SECOND, *(f"young {number}" for number in range(2000)), deadline=now + DAY)
    taken(store, now - 30 * SECOND)
    store.database.command("profile", 2)
    assert LostMessages(resources).advance() == 1
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
    assert lost.advance() == 2
    queued(store, store.now() + SECOND, "since", deadline=now + DAY)
    assert lost.advance() == LostMessages(resources).advance() == 0
    resources.broker._redis.flushdb()
    assert LostMessages(resources).advance() == 0, "it was queued by a clock that was ahead"
    assert store.queues.all()["add"].lost_before is not None


@pytest.mark.parametrize("others", [0, 3])
def test_a_redis_that_has_all_and_lacks_the_key(resources: Resources, store: Store, now: datetime, others: int) -> None:
    """Of a version that wrote none, or somebody removed it; or nothing was queued when it was emptied."""
    resources.broker._redis.flushdb()
    resources.broker._redis.lpush("add", *["some message"] * (2 + others))
    queued(store, now, "one", "two", deadline=now + DAY)
    assert LostMessages(resources).advance() == 0
    assert Kept(resources.settings.broker_url).is_noted()
    resources.broker._redis.delete("add")
    assert LostMessages(resources).advance() == 0, "one queue that is gone is not all data"


def test_who_sees_it_ends_before_it_is_told(
    resources: Resources, store: Store, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    resources.broker._redis.flushdb()
    queued(store, now, "one", deadline=now + DAY)
    lost = LostMessages(resources)
    with monkeypatch.context() as patch:
        patch.setattr(store.queues, "lost", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            lost.advance()
    assert LostMessages(resources).advance() == 1


def test_two_see_it(resources: Resources, store: Store, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second, which stood still, takes nothing for lost that the first has pushed again."""
    resources.broker._redis.flushdb()
    queued(store, now, "one", deadline=now + DAY)
    first, second = LostMessages(resources), LostMessages(resources)
    real = store.now

    def meanwhile() -> datetime:
        monkeypatch.setattr(store, "now", real)
        assert first.advance() == 1
        again = {"queuedAt": "$$NOW", "recoveryTime": now + DAY}
        store.database["decisions"].update_one({"_id": "p/one"}, [{"$set": again}])
        return real()

    monkeypatch.setattr(store, "now", meanwhile)
    assert second.advance() == 0
    assert LostMessages(resources).advance() == 0


def test_redis_is_away(resources: Resources, store: Store, now: datetime) -> None:
    resources.broker._redis.flushdb()
    queued(store, now, "one", deadline=now + DAY)
    elsewhere = resources.settings.model_copy(update={"broker_url": f"redis://{HOST}:{free_port()}/0"})
    away = replace(resources, settings=elsewhere)
    assert LostMessages(away).advance() == 0
    assert LostMessages(resources).advance() == 1
