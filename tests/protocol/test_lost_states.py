"""Decisions whose state another program removed or spoilt: the other fields show it, and the process ends right."""

from __future__ import annotations

from typing import Any

import pytest

from recovery import Settings
from recovery.records import ProcessState
from recovery.store import schema
from tests.protocol.harness import RESULT, World
from tests.seldom import by_turns
from tests.world import check_quiet

pytestmark = pytest.mark.thorough

DAMAGE = [{"$unset": {"state": ""}}, {"$set": {"state": "done"}}]


@pytest.fixture
def world(emptied: Settings) -> World:
    return World(emptied)


@pytest.mark.parametrize("state", ["waiting", "queued", "working", "delayed"])
def test_a_task_that_has_ended_and_is_said_to_be_open_has_ended(world: World, state: str) -> None:
    process_id = world.start("pyramid", [1, 2, 3])
    world.dies("Decisions.claim:after", lambda doomed: doomed.pump(), 2)
    update = {"q": {"_id": f"{process_id}/start"}, "u": {"$set": {"state": state}}}
    world.store.database.command("update", schema.DECISIONS, updates=[update], bypassDocumentValidation=True)
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED
    assert world.app.result(process_id, timeout=0) == RESULT
    check_quiet(world, process_id)
    start = world.store.decisions.get(f"{process_id}/start")
    assert start is not None and start.attempts == 1, "it did not run again"


@pytest.mark.parametrize(
    ("at", "skipped", "damage"),
    [
        *by_turns(["Decisions.claim:after", "Decisions.finish:after"], [0, 1], DAMAGE),
        *by_turns(["Requeues.enqueue_ready:after"], [0], DAMAGE),
    ],
)
def test_cut_off_and_every_state_is_lost(world: World, at: str, skipped: int, damage: dict[str, Any]) -> None:
    process_id = world.start("pyramid", [1, 2, 3])
    world.dies(at, lambda doomed: doomed.pump(), skipped)
    update = {"q": {"_id": {"$regex": f"^{process_id}"}}, "u": damage, "multi": True}
    world.store.database.command("update", schema.DECISIONS, updates=[update], bypassDocumentValidation=True)
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED
    assert world.app.result(process_id, timeout=0) == RESULT
    check_quiet(world, process_id)


def test_a_task_that_is_said_to_have_ended_with_nothing_runs_also_if_its_call_is_damaged(world: World) -> None:
    process_id = world.start("pyramid", [1, 2, 3])
    world.dies("Decisions.claim:after", lambda doomed: doomed.pump(), 1)
    spoilt = {"$set": {"state": "finished", "call": {"a": "b"}}}
    update = {"q": {"_id": {"$regex": f"^{process_id}"}, "outcome": None}, "u": spoilt, "multi": True}
    done = world.store.database.command("update", schema.DECISIONS, updates=[update], bypassDocumentValidation=True)
    assert done["nModified"]
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED
    assert world.app.result(process_id, timeout=0) == RESULT
    check_quiet(world, process_id)
