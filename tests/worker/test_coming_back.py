"""After the database was away all that was at work is overdue: who did it comes first, and then the scanners."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from recovery.errors import StoreDenied, StoreTimeout, StoreUnavailable
from recovery.settings import Settings
from recovery.store.lifecycle.queues import Queues
from recovery.store.lifecycle.task_deadlines import TaskDeadlines
from recovery.store.lifecycle.workers import Workers
from recovery.worker.identity import identify
from recovery.worker.lifeline import judging, lifeline
from recovery.worker.lifeline.judging import HOLD_EVERY, ServerClock
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages.queue_consumption import QueueConsumption
from tests.clock import Clock
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.waiting import wait_until
from tests.world import World


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (lifeline, judging):
        monkeypatch.setattr(module, "time", made)
    return made


def test_scans_are_held_back_after_an_outage_but_not_for_ever(
    emptied: Settings, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    world = World(emptied, heartbeat_timeout=6.0)
    celery: Any = Celery(set_as_current=False)
    one = Lifeline(world.app, identify("one", ()), QueueConsumption(SimpleNamespace(app=celery), ()))

    def outage() -> None:
        with monkeypatch.context() as away:
            away.setattr(Workers, "beat", _away)
            one.beat_once()
        assert one.judging.in_outage_grace(), "who has just been cut off does not judge, either"
        one.beat_once()

    one.beat_once()
    assert not one.judging.in_outage_grace(), "a worker that starts has nothing to wait for"
    outage()
    assert one.judging.in_outage_grace()
    clock.now += 6.1
    assert not one.judging.in_outage_grace()
    outage()
    assert not one.judging.in_outage_grace(), "where one outage follows the other, recovery goes on between them"
    clock.now += 6.0 * HOLD_EVERY
    outage()
    assert one.judging.in_outage_grace()


def test_it_says_once_that_mongodb_is_back(
    emptied: Settings, monkeypatch: pytest.MonkeyPatch, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it was: also what did not pass by itself."""
    world = World(emptied, heartbeat_timeout=6.0)
    celery: Any = Celery(set_as_current=False)
    one = Lifeline(world.app, identify("one", ()), QueueConsumption(SimpleNamespace(app=celery), ()))
    one.beat_once()
    with monkeypatch.context() as away:
        away.setattr(Workers, "beat", _away)
        for _ in range(3):
            one.beat_once()
            clock.now += 2.0
    for _ in range(3):
        one.beat_once()
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told[0].startswith("no heartbeat is written (away)")
    assert told[1:] == ["MongoDB takes heartbeats again, after 6 s"]


def test_another_cause_for_which_no_heartbeat_is_written_is_logged(
    emptied: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when MongoDB is back and knows the worker's user no longer. Of each cause once."""
    one = Lifeline(
        World(emptied).app, identify("one", ()), QueueConsumption(SimpleNamespace(app=Celery(set_as_current=False)), ())
    )
    for error in (StoreUnavailable("away"), StoreDenied("denied"), StoreTimeout("slow"), StoreDenied("denied")):
        monkeypatch.setattr(Workers, "beat", partial(_raise, error))
        one.beat_once()
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text.partition(":")[0] for text in told] == [
        f"no heartbeat is written ({why})" for why in ("away", "denied")
    ]


@pytest.mark.parametrize(("owner", "step"), [(Queues, "polled_again"), (TaskDeadlines, "taken_up")])
def test_a_queue_that_is_polled_again_is_looked_at_though_mongodb_was_away_just_then(
    emptied: Settings, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    world = World(emptied)
    celery: Any = Celery(set_as_current=False)
    one = Lifeline(world.app, identify("one", ()), QueueConsumption(SimpleNamespace(app=celery), ()))
    world.store.database["queues"].insert_one({"_id": "order", "polledAt": world.store.now() - timedelta(hours=1)})
    one._queues._returned.add("order")
    looked, taken_up = list[str](), TaskDeadlines.taken_up

    def note(store: Any, queue: str, *args: Any) -> Any:
        looked.append(queue)
        return taken_up(store, queue, *args)

    monkeypatch.setattr(TaskDeadlines, "taken_up", note)
    with monkeypatch.context() as during:
        during.setattr(owner, step, _away)
        one.beat_once()
    assert not looked
    one.beat_once()
    one.beat_once()
    assert looked == ["order"], "once"


@pytest.mark.parametrize("cut_off", [False, True], ids=["steps alone", "and outages"])
def test_a_clock_that_steps_again_and_again_holds_nothing_back_for_ever(
    emptied: Settings, monkeypatch: pytest.MonkeyPatch, clock: Clock, cut_off: bool
) -> None:
    """Two members, say, whose clocks differ, and that follow each other as the primary."""
    world = World(emptied, heartbeat_timeout=6.0)
    celery: Any = Celery(set_as_current=False)
    one = Lifeline(world.app, identify("one", ()), QueueConsumption(SimpleNamespace(app=celery), ()))
    monkeypatch.setattr(ServerClock, "look", lambda *_: True)
    held = []
    for at in range(100):
        if cut_off and at % 4 == 3:
            with monkeypatch.context() as away:
                away.setattr(Workers, "beat", _away)
                one.beat_once()
            one.beat_once()
        held.append(one.judging.in_outage_grace())
        clock.now += 1.0
    assert held[:6] == [True] * 6
    assert 3 * 6 <= sum(held) <= 3 * 7, "a heartbeat timeout of each six"


def test_what_follows_a_heartbeat_holds_nothing_back(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has locked one collection, say: this worker lives, by its record, and so do others."""
    world = World(emptied, heartbeat_timeout=6.0)
    celery: Any = Celery(set_as_current=False)
    one = Lifeline(world.app, identify("one", ("add",)), QueueConsumption(SimpleNamespace(app=celery), ("add",)))
    monkeypatch.setattr(Queues, "polled_again", _away)
    one.beat_once()
    assert [worker.name for worker in world.store.workers.all()] == ["one"]
    assert not one.judging.in_outage_grace()


def test_who_is_overdue_by_mongodbs_clock_alone_is_not_silent(emptied: Settings, clock: Clock) -> None:
    """A worker whose record this one has not watched for a heartbeat timeout, whatever is past by the database's."""
    world = World(emptied, heartbeat_interval=2.0, heartbeat_timeout=6.0)
    celery: Any = Celery(set_as_current=False)
    one = Lifeline(world.app, identify("one", ()), QueueConsumption(SimpleNamespace(app=celery), ()))
    other = identify("other", ()).evolve(host="elsewhere")
    for _ in range(4):
        one.beat_once()
        clock.now += 2.0
    for _ in range(5):  # it beats, and each time is overdue at once
        world.store.workers.beat(other, timeout=-60)
        one.beat_once()
        assert one.judging.silent() == {}
        clock.now += 2.0
    seen = []
    for _ in range(4):
        one.beat_once()
        seen.append(other.id in one.judging.silent())
        clock.now += 2.0
    assert seen == [False, False, True, True]


def test_who_stood_still_does_not_judge_who_did_so_with_him(emptied: Settings, clock: Clock) -> None:
    """A machine that was paused, say: of its workers one is the first to go on, and the others were silent as long."""
    world = World(emptied, heartbeat_interval=2.0, heartbeat_timeout=6.0)
    celery: Any = Celery(set_as_current=False)
    one = Lifeline(world.app, identify("one", ()), QueueConsumption(SimpleNamespace(app=celery), ()))
    other = identify("other", ()).evolve(host="elsewhere")
    for _ in range(5):
        world.store.workers.beat(other, timeout=6.0)
        one.beat_once()
        clock.now += 2.0
    assert one.judging.may_judge()
    clock.now += 5.0
    assert not one.judging.may_judge(), "who has not been heard for so long has not heard others, either"
    seen = []
    for _ in range(5):
        one.beat_once()
        seen.append(other.id in one.judging.silent())
        clock.now += 2.0
    assert seen == [False, False, False, False, True], "judged once it was watched for a heartbeat timeout"


def _away(*_: object) -> None:
    raise StoreUnavailable("away")


def _raise(error: Exception, *_: object) -> None:
    raise error


def test_a_worker_whose_record_was_removed_registered_when_it_did_first(emptied: Settings) -> None:
    world = World(emptied)
    celery: Any = Celery(set_as_current=False)
    one = Lifeline(world.app, identify("one", ()), QueueConsumption(SimpleNamespace(app=celery), ()))
    one.beat_once()
    (first,) = world.store.workers.all()
    assert first.started_at is not None
    world.store.workers.remove([first.id])
    wait_until(lambda: world.store.now() > first.started_at + timedelta(milliseconds=5), 5, "later")
    one.beat_once()
    (again,) = world.store.workers.all()
    assert again.started_at == first.started_at
