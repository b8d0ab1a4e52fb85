"""Starting a process: once per custom id; and what can't be started leaves nothing behind."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from recovery import Recovery
from recovery.errors import CustomIdTaken, InputError, NotEncodable, ProcessNotFound, TooLarge, UnknownProcessType
from recovery.queue.coordination import KEPT_KEY
from recovery.records import DecisionState, Promise
from tests.world import World

NOTHING = {"processes": 0, "tasks": 0, "decisions": 0, "graphs": 0}
ONE = dict.fromkeys(NOTHING, 1)


@pytest.fixture(autouse=True)
def actors(app: Recovery) -> None:
    @app.process()
    def order(*args: Any, **kwargs: Any) -> list[Any]:
        return [list(args), kwargs]

    @app.actor()
    def helper() -> None: ...


REFUSED: list[tuple[str, type[InputError], str, Any]] = [
    ("unknown", UnknownProcessType, "no process type is named 'ordr'; did you mean 'order'", lambda a: a.start("ordr")),
    (
        "an actor that is no process type",
        UnknownProcessType,
        "'helper' is an actor, and no process type: register it by @app.process() instead of @app.actor(), or start a "
        "process that schedules it",
        lambda a: a.start(a.find_actor("helper")),
    ),
    (
        "another application's",
        UnknownProcessType,
        "no process type is named 'refund'",
        lambda a: a.start(Recovery(a.settings).process("refund")(lambda: 1)),
    ),
    (
        "a promise",
        InputError,
        "arguments of order: a process can't be started with a promise; use its value",
        lambda a: a.start("order", {"a": [Promise("t", "helper")]}),
    ),
    ("not JSON", NotEncodable, "arguments of order[0][1]['x']: a b", lambda a: a.start("order", 1, {"x": {1}})),
    ("not JSON, named", NotEncodable, "arguments of order[1]['x']: nan", lambda a: a.start("order", x=math.nan)),
    ("no text", NotEncodable, "arguments of order[0][0]: holds a lone surrogate", lambda a: a.start("order", "\ud800")),
    ("too large", TooLarge, "arguments of order: at least 17,000,00", lambda a: a.start("order", "x" * 17_000_000)),
    ("custom id empty", InputError, "custom_id='': must be a text", lambda a: a.start("order", custom_id="")),
    ("custom id a number", InputError, "custom_id=7: must be a text of", lambda a: a.start("order", custom_id=7)),
    ("custom id long", InputError, "must be a text of 1 to", lambda a: a.start("order", custom_id="x" * 501)),
    ("custom id no text", InputError, "holds a lone surrogate", lambda a: a.start("order", custom_id="\ud800")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "told", "start"), [pytest.param(*case, id=what) for what, *case in REFUSED])
def test_refused_and_nothing_stored(world: World, kind: type[InputError], told: str, start: Any) -> None:
    with pytest.raises(kind) as refused:
        start(world.app)
    assert told in str(refused.value)
    assert world.counts() == NOTHING
    assert world.redis.keys() == [KEPT_KEY.encode()]


def test_started_is_saved_registered_and_queued(world: World) -> None:
    process_id = world.start("order", 1, a="b")
    assert world.counts() == ONE
    assert world.decisions(process_id)["start"].state is DecisionState.QUEUED
    assert world.pump() == 1
    assert world.app.result(process_id, timeout=0) == [[1], {"a": "b"}]


def test_a_custom_id_gives_the_same_process(world: World) -> None:
    first = world.start("order", 1, custom_id="order 1")
    assert world.start("order", 1, custom_id="order 1") == first
    world.pump()
    assert world.start("order", 1, custom_id="order 1") == first
    assert world.app.result(first, timeout=0) == [[1], {}]
    assert world.counts() == ONE
    assert world.redis.llen("order") == 0


OTHER: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((2,), {}),
    ((1, None), {}),
    ((True,), {}),
    (("1",), {}),
    ((), {"number": 1}),
]


@pytest.mark.parametrize(("args", "kwargs"), OTHER, ids=repr)
def test_a_custom_id_with_other_arguments(world: World, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Whoever takes its result would take it for that of the arguments that were given."""
    first = world.start("order", 1, custom_id="order 1")
    with pytest.raises(CustomIdTaken) as refused:
        world.start("order", *args, custom_id="order 1", **kwargs)
    assert refused.value.process_id == first
    assert str(refused.value) == (
        f"process {first} of type order has the custom_id 'order 1' already, and was started with other arguments; "
        "give this one another, or ask for the process that is there by any_arguments=True (--any-arguments)"
    )
    assert world.start("order", *args, custom_id="order 1", any_arguments=True, **kwargs) == first
    world.pump()
    assert world.app.result(first, timeout=0) == [[1], {}]
    assert world.counts() == ONE


def test_the_same_arguments_as_another_program_wrote_them(world: World) -> None:
    """An older version, say: by what they say, not by their text."""
    first = world.start("order", {"a": 1, "b": [2.5, "é"]}, custom_id="order 1")
    other = '[[{"b": [2.50, "\\u00e9"], "a": 1.0}], {}]'
    world.store.database["processes"].update_one({"_id": first}, {"$set": {"args": other}})
    assert world.start("order", {"a": 1, "b": [2.5, "é"]}, custom_id="order 1") == first


def test_a_custom_id_whose_arguments_somebody_spoilt(world: World) -> None:
    """Nobody can tell that they are the same; who does not ask for that gets the process as ever."""
    first = world.start("order", 1, custom_id="order 1")
    found = world.store.database["processes"]
    assert found.update_one({"_id": first}, {"$set": {"args": 5}}, bypass_document_validation=True).modified_count
    with pytest.raises(CustomIdTaken, match="started with arguments that can't be read any more"):
        world.start("order", 1, custom_id="order 1")
    assert world.start("order", 1, custom_id="order 1", any_arguments=True) == first


def test_one_custom_id_with_other_arguments_by_eight_at_once(world: World) -> None:
    """One of them is it; the others are told so."""
    barrier = Barrier(8)

    def start(number: int) -> str:
        barrier.wait()
        try:
            return world.start("order", number, custom_id="order 1")
        except CustomIdTaken as taken:
            return f"not {taken.process_id}"

    with ThreadPoolExecutor(8) as pool:
        told = sorted(pool.map(start, range(8)))
    assert told[1:] == [f"not {told[0]}"] * 7
    assert world.counts() == ONE


def test_one_custom_id_started_by_eight_at_once(world: World) -> None:
    barrier = Barrier(8)

    def start(number: int) -> str:
        barrier.wait()
        return world.start("order", number, custom_id="order 1", any_arguments=True)

    with ThreadPoolExecutor(8) as pool:
        (process_id,) = set(pool.map(start, range(8)))
    assert world.pump() == 1
    assert world.counts() == ONE
    assert world.app.result(process_id, timeout=0)[0][0] in range(8)


def test_arguments_come_as_they_were_given(world: World) -> None:
    given = {"a.b": {"$set": 2**70}, "": [None, True, -0.0, "$NOW", "é\0"]}
    process = world.app.find_actor("order")
    assert world.run(process, given, {"$x": given}, name=given) == [[given, {"$x": given}], {"name": given}]


def test_no_such_process(world: World) -> None:
    with pytest.raises(ProcessNotFound, match="no process has the id 'nobody' in database test_"):
        world.app.result("nobody")
