"""The canaries of a drill where one of them is damaged, and where a worker takes none."""

from __future__ import annotations

import pytest

from recovery.drill import drilling as run
from recovery.drill.canary_actor import CanaryKind, canary_actor
from recovery.drill.flock import Flock
from recovery.drill.sightings import Step
from recovery.installed import library_version
from recovery.records import Worker
from recovery.records.ids import CANARY
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
    whole, damaged = drill.start(CanaryKind.CALL), drill.start(CanaryKind.CALL)
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


def test_a_call_that_nobody_took_in_time_is_no_failed_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not given the time that a start has; that its worker took none is told all the same."""
    monkeypatch.setattr(run._Drill, "_rounds", lambda _: None)
    monkeypatch.setattr(run, "CALL_TIMEOUT", 0.3)
    busy = Worker(id="w", name="w", pid=1, pid_started=1, host="h", queues=(CANARY,), version=library_version())
    world.store.workers.beat(busy, 60)
    found = run.run(world.app.resources, run.DrillPlan(processes=1))
    assert [len(one.probes) for one in found.steps if one.step is Step.START] == [1], "of the round that was not begun"
    assert found.processes > 0 and [one.canaries for one in found.workers] == [0]
