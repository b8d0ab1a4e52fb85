"""The canaries of a drill where one of them is damaged."""

from __future__ import annotations

import pytest

from recovery.drill.canary import canary_actor
from recovery.drill.flock import Flock
from recovery.drill.orders import CANARY, Kind
from recovery.settings import Settings
from tests.world import World


@pytest.fixture
def world(emptied: Settings) -> World:
    made = World(emptied)
    made.app.actors[CANARY] = canary_actor(made.app, None)
    made.tell()
    return made


def test_one_that_is_damaged_is_told_and_the_others_are_measured(world: World) -> None:
    drill = Flock(world.app.resources, "d1")
    whole, damaged = drill.start(Kind.CALL), drill.start(Kind.CALL)
    world.bring_to_end(whole.id)
    world.store.database["decisions"].update_one(
        {"_id": f"{damaged.id}/start"}, {"$set": {"attempts": "many"}}, bypass_document_validation=True
    )
    world.store.catch_up(10)
    assert drill.look()
    assert whole.ended and whole.error is None
    assert damaged.ended and damaged.error is not None and f"{damaged.id}/start" in damaged.error
    assert not drill.look()
    assert drill.remove() == 0
    assert world.store.processes.committed_briefs([whole.id, damaged.id]) == {}
