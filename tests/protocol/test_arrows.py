"""Every arrow of the order of writes (docs/records.md), cut: the process that was taking it is killed exactly there,
and the survivors bring the process to its right end."""

from __future__ import annotations

from dataclasses import replace

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
    "Requeues.enqueue_ready:before",
    "Requeues.enqueue_ready:after",
    "Broker.push:before",
    "Broker.push:after",
    "Processes.finish:before",
    "Processes.finish:after",
    "GraphRecovery.clear_deadlines:after",
    "DecisionDeadlines.clear_deadlines:before",
]


def nothing() -> None:
    """A function without parameters."""


def refuse(older: World) -> None:
    """Take and give back what is queued, as a worker of a version whose functions have other parameters."""
    older.app.actors = {name: replace(actor, function=nothing) for name, actor in older.app.actors.items()}
    older.pump("older#1")


@pytest.fixture
def world(emptied: Settings) -> World:
    return World(emptied)


def start(world: World) -> str:
    return world.start("pyramid", [1, 2, 3], custom_id="the one")


@pytest.mark.parametrize("at", START)
def test_start_cut_off(world: World, at: str) -> None:
    world.dies(at, start)
    process_id = start(world)  # the client asks again; what was acknowledged is there, and is the same
    assert world.app.resources.store.database["processes"].count_documents({}) == 1
    assert world.bring_to_end(process_id).result == str(RESULT)
    check_quiet(world, process_id)


@pytest.mark.thorough
@pytest.mark.parametrize("at", START)
def test_start_cut_off_and_never_asked_again(world: World, at: str) -> None:
    world.dies(at, start)
    found = world.app.resources.store.database["processes"].find_one({})
    assert found is not None
    assert world.bring_to_end(found["_id"]).result == str(RESULT)
    check_quiet(world, found["_id"])


@pytest.mark.parametrize("at", WORK)
def test_work_cut_off(world: World, at: str) -> None:
    process_id = start(world)
    with by_message_only():
        world.dies(at, lambda doomed: doomed.pump("doomed#1"))
        assert world.bring_to_end(process_id).result == str(RESULT)
    check_quiet(world, process_id)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "at", ["UndecidedAttempts.give_back_refused:before", "UndecidedAttempts.give_back_refused:after"]
)
def test_a_refusal_cut_off(world: World, at: str) -> None:
    process_id = start(world)
    with by_message_only():
        world.dies(at, refuse)
        assert world.bring_to_end(process_id).result == str(RESULT)
    check_quiet(world, process_id)


@pytest.mark.thorough
@pytest.mark.parametrize("at", ["UndecidedAttempts.clear_refusals:before", "UndecidedAttempts.clear_refusals:after"])
def test_an_attempt_after_a_refusal_cut_off(world: World, at: str) -> None:
    process_id = start(world)
    with by_message_only():
        refuse(World(world.settings))
        now = [{"$set": {"eta": "$$NOW", "recoveryTime": "$$NOW"}}]
        assert world.store.database["decisions"].update_many({"state": "delayed"}, now).modified_count == 1
        world.scan()
        world.dies(at, lambda doomed: doomed.pump("doomed#1"))
        assert world.bring_to_end(process_id).result == str(RESULT)
    check_quiet(world, process_id)


@pytest.mark.thorough
@pytest.mark.parametrize("at", ["Decisions.claim_ready:before", "Decisions.claim_ready:after", *WORK[2:]])
def test_work_cut_off_on_the_spot(world: World, at: str) -> None:
    process_id = start(world)
    world.dies(at, lambda doomed: doomed.pump("doomed#1"))
    assert world.bring_to_end(process_id).result == str(RESULT)
    check_quiet(world, process_id)


APPLY = [
    "DecisionDeadlines.clear_deadlines:before",
    "DecisionDeadlines.clear_deadlines:after",
    "Graphs.apply:before",
    "Graphs.apply:after",
]
CLAIMED = [
    "Decisions.claim_ready:before",
    "Decisions.claim_ready:after",
    "Decisions.finish:before",
    "Decisions.finish:after",
]


def chain_cut_off(world: World, process_id: str, at: str, skipped: int) -> None:
    """A chain's steps run before the graph has learnt of those before them."""
    world.dies(at, lambda doomed: doomed.pump("doomed#1"), skipped)
    assert world.bring_to_end(process_id).result == "32"
    check_quiet(world, process_id)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("at", "skipped"), [*((at, 0) for at in APPLY), *((at, skipped) for at in CLAIMED for skipped in (0, 1, 2))]
)
@pytest.mark.parametrize("by", ["who scheduled it", "another"])
def test_chain_cut_off(world: World, at: str, skipped: int, by: str) -> None:
    """Cut off at the first, second, third; by who scheduled the steps, or who got the first step by a message."""
    process_id = world.start("chain", 5)
    if by == "another":
        world.pump(serve={"chain": world.app.actors["chain"]})
    chain_cut_off(world, process_id, at, skipped)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "at", ["Requeues.timed_out:after", "Broker.push:before", "Broker.push:after", "GraphRecovery.note_repair:before"]
)
def test_rescue_cut_off(world: World, at: str) -> None:
    process_id = start(world)
    world.dies("Decisions.claim:after", lambda doomed: doomed.pump("doomed#1"))

    def scan_until_dead(doomed: World) -> None:
        for _ in range(1000):
            doomed.scan()

    world.dies(at, scan_until_dead)
    assert world.bring_to_end(process_id).result == str(RESULT)
    check_quiet(world, process_id)
