"""A start in another process's place, cut off before and after each of its writes: whoever asks again has one process
of the custom id, and the one before it is over."""

from __future__ import annotations

import pytest

from recovery import Settings
from recovery.records import ProcessState
from tests.protocol.harness import RESULT, World
from tests.seldom import by_turns
from tests.store.writing import contents
from tests.world import check_quiet

pytestmark = pytest.mark.thorough

FINISHED, BROKEN, ABORTED = ProcessState.FINISHED, ProcessState.BROKEN, ProcessState.ABORTED
NAME, ARGUMENTS = "order-17", [1, 2, 3]
ABORT = [f"Aborts.{step}" for step in ("announce", "end", "close_graphs", "end_decisions", "clear_graph_deadlines")]
CUT_OFF = {state: ["Processes.give_up_custom_id"] for state in (FINISHED, ABORTED)}
CUT_OFF[BROKEN] = [*ABORT, "Processes.give_up_custom_id"]


@pytest.fixture
def world(emptied: Settings) -> World:
    return World(emptied)


def brought_to(world: World, state: ProcessState) -> str:
    # No text can be squared.
    process = world.start("pyramid", ["one"] if state is BROKEN else ARGUMENTS, custom_id=NAME)
    if state is ABORTED:
        world.app.abort(process, "ordered twice")
    else:
        assert world.bring_to_end(process).state is state
    return process


def start(world: World) -> str:
    return world.start("pyramid", ARGUMENTS, custom_id=NAME, if_exists="new_after_end")


@pytest.mark.parametrize(
    ("place", "moment"),
    by_turns([(state, step) for state, steps in CUT_OFF.items() for step in steps], ["before", "after"]),
)
def test_cut_off(world: World, place: tuple[ProcessState, str], moment: str) -> None:
    state, step = place
    first = brought_to(world, state)
    world.dies(f"{step}:{moment}", start)
    assert {*contents(world.store, "processes")} == {first}, "nobody was told of another one"
    second = start(world)
    named = [key for key, one in contents(world.store, "processes").items() if one.get("customId") == NAME]
    assert named == [second] != [first]
    assert world.bring_to_end(second).result == str(RESULT)
    check_quiet(world, second)
    assert world.bring_to_end(first).state is (FINISHED if state is FINISHED else ABORTED)
