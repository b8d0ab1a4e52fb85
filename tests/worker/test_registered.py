"""A worker that registers may accept what others refuse: it is queued again at once."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from recovery.records import PINNED, Decision, DecisionState, Refused, VersionRefusal
from recovery.settings import Settings
from recovery.worker.identity import identify
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages.queue_consumption import QueueConsumption
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.store.writing import put
from tests.world import World


@pytest.fixture
def world(emptied: Settings) -> World:
    made = World(emptied)
    made.app.actor("pack")(lambda: None)
    made.app.actor("ship")(lambda: None)
    return made


def delayed(world: World, name: str, actor: str, **changes: Any) -> datetime:
    later = world.store.now() + timedelta(seconds=30)
    made = Decision(id=f"p/{name}", actor=actor, state=DecisionState.DELAYED, eta=later, recovery_time=later)
    put(world.store, made.evolve(**changes))
    return later


def test_a_refused_task_is_due_once_a_worker_registers_that_serves_its_actor(world: World) -> None:
    now = world.store.now()
    refused = Refused(count=9, attempts=0, pass_key="k", by=(VersionRefusal(version="1.0", since=now, why=PINNED),))
    delayed(world, "refused", "pack", refused=refused)
    later = {name: delayed(world, name, actor, **changes) for name, actor, changes in (
        ("retried", "pack", {}), ("elsewhere", "ship", {"refused": refused}),
    )}  # fmt: skip
    celery: Any = Celery(set_as_current=False)
    one = Lifeline(world.app, identify("one", ("pack",)), QueueConsumption(SimpleNamespace(app=celery), ("pack",)))
    one.beat_once()
    found = world.decisions("p")
    due = found["refused"]
    assert due.eta == due.recovery_time
    assert due.eta is not None and due.eta <= world.store.now()
    for name, moment in later.items():
        assert abs((found[name].recovery_time or now) - moment) < timedelta(seconds=0.1)
    # Once: what others refuse after that has its own time.
    again = delayed(world, "again", "pack", refused=refused)
    one.beat_once()
    assert abs((world.decisions("p")["again"].recovery_time or now) - again) < timedelta(seconds=0.1)
