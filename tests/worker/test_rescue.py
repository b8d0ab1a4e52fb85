"""What a pool process had claimed that died: requeued at once, and looked at until that is certain."""

from __future__ import annotations

import pytest

from recovery.errors import StoreUnavailable
from recovery.records import DecisionState
from recovery.settings import Settings
from recovery.store import Store
from recovery.store.lifecycle.requeues import Requeues
from recovery.worker.lifeline import rescue as module
from recovery.worker.lifeline.rescue import Rescue
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.store import single
from tests.world import World


@pytest.fixture
def world(emptied: Settings) -> World:
    world = World(emptied)

    @world.app.process()
    def idle() -> None: ...

    world.tell()
    world.start(idle)
    return world


def claim(world: World, holder: str) -> str:
    (document,) = world.store.database["decisions"].find({"state": "queued"})
    claimed = single.claim(world.store, "idle", document["_id"], document["pass"], holder, 60)
    assert claimed is not None
    return claimed.id


def state(world: World, decision_id: str) -> DecisionState:
    decision = world.store.decisions.get(decision_id)
    assert decision is not None
    return decision.state


def test_nobody_is_looked_after_for_ever(world: World) -> None:
    claimed, rescue = claim(world, "w#7"), Rescue(world.app)
    assert rescue.run_once() == frozenset()
    rescue.gone("w#7")
    assert rescue.run_once() == {"w#7"}
    assert state(world, claimed) is DecisionState.QUEUED
    assert rescue.run_once() == frozenset(), "a majority has it"


def test_what_could_not_be_done_is_done_though_the_majority_lags(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed, rescue = claim(world, "w#7"), Rescue(world.app)
    rescue.gone("w#7")
    monkeypatch.setattr(Store, "catch_up", _away)
    with monkeypatch.context() as away:
        away.setattr(Requeues, "requeue_worker_lost", _away)
        assert rescue.run_once() == {"w#7"}
    assert state(world, claimed) is DecisionState.WORKING
    assert rescue.run_once() == {"w#7"}
    assert state(world, claimed) is DecisionState.QUEUED


def test_who_can_not_be_rescued_holds_up_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed, rescue = claim(world, "w#7"), Rescue(world.app)

    def damaged(resources: object, repairer: object, lost: list[str], *forgotten: object) -> object:
        if lost == ["w#6"]:
            raise ValueError("damaged")
        return original(resources, repairer, lost, *forgotten)  # type: ignore[arg-type]

    original = module.rescue
    monkeypatch.setattr(module, "rescue", damaged)
    for name in ("w#6", "w#7", "w#8"):
        rescue.gone(name)
    assert rescue.run_once() == {"w#6", "w#7", "w#8"}
    assert state(world, claimed) is DecisionState.QUEUED
    assert rescue.run_once() == frozenset(), "its deadlines stand"


def _away(*_: object) -> None:
    raise StoreUnavailable("away")
