"""An actor is forgotten only if nothing is hidden by it, whatever comes in between."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from recovery.engine.operators.abort import forget_actor
from recovery.errors import InputError
from recovery.records import ActorPreferences, Decision, DecisionState, Worker
from recovery.store import Store
from tests.store.writing import put
from tests.world import World


def queue_task(store: Store) -> None:
    now = store.now()
    queued = Decision(id="p/t", actor="old", state=DecisionState.QUEUED, queued_at=now)
    put(store, queued.evolve(recovery_time=now + timedelta(days=1)))


def start_worker(store: Store) -> None:
    store.workers.beat(Worker(id="w", name="w", host="", pid=1, pid_started=1, queues=("old",)), 60)


@pytest.mark.parametrize(("comes", "said"), [(queue_task, "1 queued"), (start_worker, "served by w")])
def test_what_comes_in_between_is_not_hidden(
    world: World, monkeypatch: pytest.MonkeyPatch, comes: Callable[[Store], None], said: str
) -> None:
    """After all was found to be gone, and before its settings are removed."""
    store = world.store
    store.actors.save([ActorPreferences(id="old", worker_timeout=7)])
    store.actors.override("old", {"max_work_timeouts": 3})
    before = store.actors.stored()
    real = store.actors.forget

    def forget(name: str) -> Any:
        comes(store)
        return real(name)

    monkeypatch.setattr(store.actors, "forget", forget)
    with pytest.raises(InputError, match=said):
        forget_actor(world.app.resources, "old")
    assert store.actors.stored() == before


def test_one_that_is_blocked_in_between_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store = world.store
    store.actors.save([ActorPreferences(id="old")])
    real = store.actors.forget

    def forget(name: str) -> Any:
        store.actors.block(name)
        return real(name)

    monkeypatch.setattr(store.actors, "forget", forget)
    with pytest.raises(InputError, match="it is blocked"):
        forget_actor(world.app.resources, "old")
    assert store.actors.stored()["old"].blocked


def test_what_a_worker_told_since_is_kept(world: World) -> None:
    store = world.store
    store.actors.save([ActorPreferences(id="old", worker_timeout=7)])
    kept = store.actors.forget("old")
    assert kept is not None
    store.actors.save([ActorPreferences(id="old", worker_timeout=9)])
    store.actors.restore(kept)
    assert store.actors.all()["old"].worker_timeout == 9


def test_nothing_is_left_of_it(world: World) -> None:
    store = world.store
    store.actors.save([ActorPreferences(id="old")])
    hour_ago = store.now() - timedelta(hours=1)
    store.database["queues"].insert_one({"_id": "old", "polledAt": hour_ago})
    world.redis.lpush("old", "a message of a process that was aborted")
    assert forget_actor(world.app.resources, "old") == []
    assert "old" not in store.actors.stored() and "old" not in store.queues.all()
    assert not world.redis.exists("old")
