"""Every arrow of design §3, cut: the process that was taking it is killed exactly there, and the survivors
bring the process to its right end."""

from __future__ import annotations

import pytest

from recovery import Settings
from tests.protocol.harness import RESULT, World
from tests.world import by_message_only, check_quiet

START = [
    "Processes.insert:after",
    "Tasks.insert:before",
    "Tasks.insert:after",
    "Graphs.insert:after",
    "Decisions.insert_queued:after",
    "Broker.push:after",
]
WORK = [
    "Decisions.claim:before",
    "Decisions.claim:after",
    "Decisions.finish:before",
    "Decisions.finish:after",
    "Tasks.insert:after",
    "Decisions.insert:after",
    "Graphs.apply:before",
    "Graphs.apply:after",
    "Requeues.ready:before",
    "Requeues.ready:after",
    "Broker.push:before",
    "Broker.push:after",
    "Processes.finish:before",
    "Processes.finish:after",
    "Graphs.rest:after",
    "Decisions.rest:before",
]


@pytest.fixture
def world(settings: Settings) -> World:
    return World(settings)


def start(world: World) -> str:
    return world.app.start("pyramid", [1, 2, 3], custom_id="the one")


@pytest.mark.parametrize("at", START)
def test_start_cut_off(world: World, at: str) -> None:
    world.dies(at, start)
    process_id = start(world)  # the client asks again; what was acknowledged is there, and is the same
    assert world.app.resources.store.database["processes"].count_documents({}) == 1
    assert world.bring_on(process_id).result == str(RESULT)
    check_quiet(world, process_id)


@pytest.mark.parametrize("at", START)
def test_start_cut_off_and_never_asked_again(world: World, at: str) -> None:
    world.dies(at, start)
    found = world.app.resources.store.database["processes"].find_one({})
    assert found is not None
    assert world.bring_on(found["_id"]).result == str(RESULT)
    check_quiet(world, found["_id"])


@pytest.mark.parametrize("at", WORK)
def test_work_cut_off(world: World, at: str) -> None:
    process_id = start(world)
    with by_message_only():
        world.dies(at, lambda doomed: doomed.pump("doomed#1"))
        assert world.bring_on(process_id).result == str(RESULT)
    check_quiet(world, process_id)


@pytest.mark.parametrize("at", ["Decisions.claim_ready:before", "Decisions.claim_ready:after", *WORK[2:]])
def test_work_cut_off_on_the_spot(world: World, at: str) -> None:
    process_id = start(world)
    world.dies(at, lambda doomed: doomed.pump("doomed#1"))
    assert world.bring_on(process_id).result == str(RESULT)
    check_quiet(world, process_id)


CHAIN = ["claim_ready:before", "claim_ready:after", "finish:before", "finish:after", "rest:before", "rest:after"]


@pytest.mark.parametrize("at", [*(f"Decisions.{step}" for step in CHAIN), "Graphs.apply:before", "Graphs.apply:after"])
@pytest.mark.parametrize("skipped", [0, 1, 2])
def test_chain_cut_off(world: World, at: str, skipped: int) -> None:
    """A chain's steps run before the graph has learnt of those before them; cut off at the first, second, third."""
    process_id = world.app.start("chain", 5)
    skipped = 0 if "rest" in at or "Graphs" in at else skipped
    world.dies(at, lambda doomed: doomed.pump("doomed#1"), skipped)
    assert world.bring_on(process_id).result == "32"
    check_quiet(world, process_id)


@pytest.mark.parametrize(
    "at", ["Requeues.timed_out:after", "Broker.push:before", "Broker.push:after", "Graphs.touch:before"]
)
def test_rescue_cut_off(world: World, at: str) -> None:
    process_id = start(world)
    world.dies("Decisions.claim:after", lambda doomed: doomed.pump("doomed#1"))

    def scan_until_dead(doomed: World) -> None:
        for _ in range(1000):
            doomed.scan()

    world.dies(at, scan_until_dead)
    assert world.bring_on(process_id).result == str(RESULT)
    check_quiet(world, process_id)
