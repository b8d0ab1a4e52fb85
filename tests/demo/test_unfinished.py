"""Of a process that has not ended: whether it goes on or is stuck."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recovery import Recovery, Settings
from recovery.demo.watching import standing
from recovery.rules import Rule
from tests.world import World, by_message_only

LONG_AGO = 100.0
"""Seconds: over a heartbeat timeout, ten scans and an idle timeout."""


@pytest.fixture
def world(emptied: Settings) -> World:
    app = Recovery(emptied)

    @app.actor("step", worker_timeout=600.0)
    def step() -> None: ...

    @app.process("steps")
    def steps() -> Any:
        return step.schedule()

    return World(emptied, app)


def started(world: World) -> str:
    """A process whose first task is done, and whose second is queued."""
    process_id = world.start("steps")
    with by_message_only():
        world.take_one("steps")
    return process_id


def shift(world: World, seconds: float) -> None:
    """All that happened was so long ago; deadlines stay."""
    ago = world.store.now() - timedelta(seconds=seconds)
    database = world.store.database
    database["decisions"].update_many({"queuedAt": {"$exists": True}}, {"$set": {"queuedAt": ago}})
    database["decisions"].update_many({"outcome": {"$exists": True}}, {"$set": {"outcome.finishedAt": ago}})
    database["processes"].update_many({}, {"$set": {"startedAt": ago}})


def overdue(world: World, seconds: float) -> None:
    """All deadlines are past for so long."""
    ago = world.store.now() - timedelta(seconds=seconds)
    for name in ("decisions", "graphs", "processes"):
        world.store.database[name].update_many({"recoveryTime": {"$exists": True}}, {"$set": {"recoveryTime": ago}})


def told(world: World, process_id: str) -> str:
    return standing(world.app.resources, process_id)


def test_what_has_a_deadline_to_come_goes_on(world: World) -> None:
    process_id = started(world)
    text = told(world, process_id)
    assert text.startswith("still running: 1 of 2 tasks are done, the last event was ")
    assert "is scanned in" in text


def test_a_long_task_goes_on_however_long_ago_it_began(world: World) -> None:
    process_id = started(world)
    shift(world, LONG_AGO)
    assert told(world, process_id).startswith("still running: ")


def test_what_is_overdue_a_little_goes_on(world: World) -> None:
    process_id = started(world)
    overdue(world, 5.0)
    assert told(world, process_id).startswith("still running: ")


def test_what_nobody_looks_at_is_stuck(world: World) -> None:
    process_id = started(world)
    overdue(world, LONG_AGO)
    text = told(world, process_id)
    assert text.startswith(f"stuck: {process_id}")
    assert "has been overdue for 100 s" in text


def test_a_graph_that_is_looked_at_again_and_again_while_nothing_happens_is_stuck(world: World) -> None:
    process_id = started(world)
    world.store.database["decisions"].update_many(
        {"state": "queued"}, {"$set": {"state": "waiting"}, "$unset": {"recoveryTime": ""}}
    )
    shift(world, LONG_AGO)
    text = told(world, process_id)
    assert text.startswith("stuck: none of its tasks is queued or worked on")
    assert "for 100 s" in text


def test_what_has_no_deadline_is_stuck(world: World) -> None:
    process_id = started(world)
    for name in ("decisions", "graphs", "processes"):
        collection = world.store.database.get_collection(name)
        collection.database.command(
            "update",
            name,
            updates=[{"q": {}, "u": {"$unset": {"recoveryTime": ""}}, "multi": True}],
            bypassDocumentValidation=True,
        )
    text = told(world, process_id)
    assert text.startswith("stuck: none of its records has a deadline")
    assert Rule.DEADLINE_MISSING in text


def test_what_is_gone(world: World) -> None:
    assert told(world, "0" * 32) == "gone: it has no records"


def test_what_has_ended_meanwhile(world: World) -> None:
    process_id = world.start("steps")
    world.bring_to_end(process_id)
    assert told(world, process_id) == "finished since a moment ago"
