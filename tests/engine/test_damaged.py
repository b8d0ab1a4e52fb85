"""Records that another program spoilt: what needs them ends at once, and the reason told is the true one."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.engine import Slot, finish_process
from recovery.engine.run.slot import Result
from recovery.records import ProcessState
from recovery.store.client import Document
from tests.world import World, arguments, by_message_only, check_quiet

GHOST = '{"$promise":"ghost"}'
SPOILT: list[tuple[str, Document, str]] = [
    ("no outcome", {"$unset": {"outcome": ""}}, "it is finished, and has no outcome"),
    ("an outcome that is a text", {"$set": {"outcome": "packed"}}, "it is finished, and has no outcome"),
    ("an outcome without a pass", {"$unset": {"outcome.pass": ""}}, "its pass is missing"),
    ("neither value nor error", {"$unset": {"outcome.value": ""}}, "it is finished, with neither a value nor an error"),
    (
        "no JSON",
        {"$set": {"outcome.value": '"packed'}},
        "its outcome.value: can't be read as JSON: Unterminated string",
    ),
    (
        "too deep",
        {"$set": {"outcome.value": "[" * 100_000}},
        "its outcome.value: can't be read as JSON: maximum recurs",
    ),
    ("a number", {"$set": {"outcome.value": 5}}, ""),
    ("bytes", {"$set": {"outcome.value": b"5"}}, ""),
    ("a large list", {"$set": {"outcome.value": ["x" * 1000] * 2000}}, ""),
    (
        "a promise of nobody",
        {"$set": {"outcome.value": GHOST, "outcome.waits": ["ghost"]}},
        "a task waits for the value of task 'ghost', which is none of its children",
    ),
    ("a promise untold", {"$set": {"outcome.value": GHOST}}, "holds a promise of task 'ghost', for which it does not"),
    ("a promise of itself", {"$set": {"outcome.value": '{"$promise":{}}'}}, "can't be read as JSON: "),
]


@pytest.fixture
def packed(world: World) -> str:
    """A process whose task `pack` is finished, and `ship`, which needs its value, is queued."""
    pack = world.app.actor("pack")(lambda: "packed")
    ship = world.app.actor("ship")(lambda what: f"{what} and shipped")
    process_id = world.start(world.app.process("order")(lambda: ship.schedule(pack.schedule())))
    with by_message_only():
        for actor in ("order", "pack"):
            world.pump(serve={actor: world.app.actors[actor]})
    return process_id


def ship(world: World) -> Result:
    message = world.pop(["ship"])
    assert message is not None
    slot = Slot(world.app.resources, world.app.outbox, world.app.actors, "test#1")
    return slot.run(world.app.actors["ship"], *arguments(message))


def spoil(world: World, collection: str, actor: str, change: Document) -> str:
    """Change the record of this actor's task past the validators; its id."""
    found = world.store.database[collection].find_one({"actor": actor})
    assert found is not None
    update: dict[str, Any] = {"q": {"_id": found["_id"]}, "u": change}
    world.store.database.command("update", collection, updates=[update], bypassDocumentValidation=True)
    return str(found["_id"])


@pytest.mark.parametrize(("change", "told"), [pytest.param(*case, id=name) for name, *case in SPOILT])
def test_a_value_that_cant_be_read(world: World, packed: str, change: Document, told: str) -> None:
    key = spoil(world, "decisions", "pack", change)
    assert ship(world) is Result.FAILED
    error = world.process(packed).error
    assert error is not None and (error.kind, error.actor) == ("DamagedRecord", "ship")
    assert key in error.message and told in error.message, error.message
    decision = world.store.decisions.get(f"{packed}/{error.task}")
    assert decision is not None and (decision.attempts, decision.timeouts) == (1, 0)


ARGUMENTS: list[tuple[str, Document, str]] = [
    ("no JSON", {"args": "[["}, "its args: can't be read as JSON: Expecting value"),
    ("no list", {"args": "7"}, "its args are not [positional, named] arguments"),
    ("the wrong way round", {"args": "[{},[]]"}, "its args are not [positional, named] arguments"),
    ("a promise untold", {"args": f"[[{GHOST}],{{}}]"}, "its args: holds a promise of task 'ghost'"),
    (
        "a task of nobody",
        {"deps": ["ghost"]},
        "a task waits for the value of task 'ghost', which is none of its children",
    ),
]


@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize(("fields", "told"), [pytest.param(*case, id=name) for name, *case in ARGUMENTS])
def test_arguments_that_cant_be_read(world: World, packed: str, copied: bool, fields: Document, told: str) -> None:
    if copied:
        spoil(world, "decisions", "ship", {"$set": {f"call.{name}": value for name, value in fields.items()}})
    else:
        spoil(world, "decisions", "ship", {"$unset": {"call": ""}})
        spoil(world, "tasks", "ship", {"$set": fields})
    assert ship(world) is Result.FAILED
    process = world.process(packed)
    assert process.state is ProcessState.BROKEN and process.error is not None
    assert process.error.kind == "DamagedRecord" and told in process.error.message, process.error.message


@pytest.mark.parametrize("field", ["deps"])
def test_a_task_record_that_cant_be_read(world: World, packed: str, field: str) -> None:
    spoil(world, "decisions", "ship", {"$unset": {"call": ""}})
    key = spoil(world, "tasks", "ship", {"$set": {field: 5}})
    assert ship(world) is Result.FAILED
    error = world.process(packed).error
    assert error is not None and error.kind == "DamagedRecord" and key in error.message, error


def test_a_value_that_is_lost_and_can_be_made_again_is_waited_for(world: World, packed: str) -> None:
    spoil(world, "decisions", "pack", {"$set": {"state": "waiting"}, "$unset": {"outcome": ""}})
    assert ship(world) is Result.NOT_READY
    assert world.bring_to_end(packed).result == '"packed and shipped"'
    check_quiet(world, packed)


@pytest.mark.parametrize(("change", "told"), [pytest.param(*case, id=name) for name, *case in SPOILT])
def test_a_result_that_cant_be_read(world: World, packed: str, change: Document, told: str) -> None:
    """Spoilt before the process is finished: that is put off here, as if cut off."""
    with pytest.MonkeyPatch.context() as cut:
        cut.setattr("recovery.engine.apply.apply._finish", lambda *_: None)
        world.pump()
    key = spoil(world, "decisions", "ship", change)
    finish_process(world.app.resources, packed, 0)
    process = world.process(packed)
    assert process.state is ProcessState.BROKEN and process.error is not None
    assert (process.error.kind, process.error.task) == ("DamagedRecord", None)
    assert key in process.error.message and told in process.error.message, process.error.message
