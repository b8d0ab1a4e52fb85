"""Many processes started at once: each as one is, and what becomes of each is told."""

from __future__ import annotations

import json
import os
from typing import Any
from unittest.mock import patch

import pytest
from pymongo.errors import AutoReconnect

from recovery import CustomIdTaken, InputError
from recovery.engine import Registrar
from recovery.engine.start import registration as registrar
from recovery.engine.start import start as starting
from recovery.errors import ServerUnavailable, StartRefused, StoreUnavailable
from recovery.store.lifecycle.processes import Processes
from tests.waiting import wait_until
from tests.world import World, check_quiet


@pytest.fixture
def order(world: World) -> Any:
    @world.app.process()
    def order(number: int, by: str = "somebody") -> list[Any]:
        return [number, by]

    world.tell()
    return order


@pytest.fixture(params=[False, True], ids=["in any order", "in order"])
def ordered(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_all_come_to_their_ends(world: World, order: Any, ordered: bool) -> None:
    with patch.object(registrar, "TOGETHER", 3):
        started = world.start_many(order, [[1], (2,), {"number": 3, "by": "me"}, [4, "you"], [5]], ordered=ordered)
    assert [one.id for one in started] == sorted(one.id for one in started)
    assert not any(one.was_there or one.error for one in started)
    world.pump()
    expected = [[1, "somebody"], [2, "somebody"], [3, "me"], [4, "you"], [5, "somebody"]]
    assert [world.app.result(one.id, timeout=0) for one in started] == expected
    for one in started:
        check_quiet(world, one.id)


def test_their_messages_are_in_their_order(world: World, order: Any) -> None:
    started = world.start_many(order, [[number] for number in range(50)])
    texts: Any = world.redis.lrange("order", 0, -1)
    queued = [json.loads(text)["headers"]["id"] for text in reversed(texts)]
    assert [text.partition("/")[0] for text in queued] == [one.id for one in started]


def test_what_one_start_writes_many_write(world: World, order: Any) -> None:
    """But for ids and times."""
    one = world.start(order, 7, custom_id="a", labels={"of": "us"})
    (other,) = world.start_many(order, [[7]], custom_ids=["b"], labels={"of": "us"})
    for name in ("processes", "tasks", "decisions", "graphs"):
        found = list(world.store.database[name].find().sort("_id", 1))
        assert [document["_id"].partition("/")[0] for document in found] == [one, other.id]
        first, second = ({k: v for k, v in d.items() if k not in ("_id", "customId", "pass")} for d in found)
        assert first.keys() == second.keys()
        for key, value in first.items():
            assert type(value) is type(second[key])
            if not key.endswith(("At", "Time")) and key != "notFinished":
                assert value == second[key], key
    process = world.store.database["processes"].find_one({"_id": other.id})
    assert process is not None
    assert (process["recoveryTime"] - process["startedAt"]).total_seconds() == world.settings.idle_timeout


def test_of_none_nothing_is_started(world: World, order: Any, ordered: bool) -> None:
    assert world.start_many(order, [], ordered=ordered) == []


def test_those_that_are_there_are_told(world: World, order: Any, ordered: bool) -> None:
    there = world.start(order, 2, custom_id="order 2")
    ids = [f"order {number}" for number in range(5)]
    started = world.start_many(order, [[number] for number in range(5)], custom_ids=ids, ordered=ordered)
    assert [one.was_there for one in started] == [False, False, True, False, False]
    assert started[2].id == there
    again = world.start_many(order, [[number] for number in range(5)], custom_ids=ids, ordered=ordered)
    assert [one.id for one in again] == [one.id for one in started]
    assert all(one.was_there for one in again)
    assert world.counts()["processes"] == 5


def test_one_custom_id_twice_is_one_process(world: World, order: Any, ordered: bool) -> None:
    first, second = world.start_many(order, [[1], [1]], custom_ids=["a", "a"], ordered=ordered)
    assert (first.id, first.was_there, second.was_there) == (second.id, False, True)


def test_one_that_is_there_with_other_arguments(world: World, order: Any, ordered: bool) -> None:
    world.start(order, 1, custom_id="a")
    refused, other = world.start_many(order, [[2], [3]], custom_ids=["a", "b"], ordered=ordered)
    assert isinstance(refused.error, CustomIdTaken)
    if ordered:
        assert "an earlier start failed" in str(other.error)
    else:
        assert (other.error, other.was_there) == (None, False)
    assert world.counts()["processes"] == (1 if ordered else 2)
    (allowed,) = world.start_many(order, [[2]], custom_ids=["a"], any_arguments=True)
    assert allowed.was_there


def test_one_that_was_aborted_gives_up_its_custom_id(world: World, order: Any, ordered: bool) -> None:
    aborted = world.start(order, 1, custom_id="a")
    world.app.abort(aborted, "not wanted")
    (started,) = world.start_many(order, [[2]], custom_ids=["a"], ordered=ordered)
    assert (started.was_there, started.error) == (False, None)
    world.pump()
    assert world.app.result(started.id, timeout=0) == [2, "somebody"]


def test_a_type_that_is_disabled(world: World, order: Any, ordered: bool) -> None:
    world.store.database["processTypes"].update_one({"_id": "order"}, {"$set": {"disabled": {"reason": "x"}}})
    world.store.preferences.invalidate()
    started = world.start_many(order, [[1], [2]], ordered=ordered)
    assert isinstance(started[0].error, StartRefused)
    assert started[1].error is not None
    assert world.counts()["processes"] == 0


def test_a_type_that_is_disabled_while_many_are_started(
    world: World, order: Any, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked before each thousand of them."""
    real = world.store.processes.insert_many

    def save(*args: Any, **kwargs: Any) -> Any:
        saved = real(*args, **kwargs)
        world.store.database["processTypes"].update_one({"_id": "order"}, {"$set": {"disabled": {"reason": "x"}}})
        world.store.preferences.invalidate()
        return saved

    monkeypatch.setattr(world.store.processes, "insert_many", save)
    with patch.object(registrar, "TOGETHER", 3):
        started = world.start_many(order, [[n] for n in range(10)], ordered=ordered)
    assert [one.error is None for one in started] == [True] * 3 + [False] * 7
    assert isinstance(started[3].error, StartRefused)
    assert world.counts()["processes"] == 3


@pytest.mark.parametrize(
    ("arguments", "custom_ids", "told"),
    [
        ([[1], 2], None, r"arguments\[1\] of order is 2: give a list or tuple"),
        (["12"], None, r"arguments\[0\] of order is '12'"),
        ([[1], []], None, "missing a required argument: 'number'"),
        ([{"numero": 1}], None, "missing a required argument"),
        ([[object()]], None, "object"),
        ([[1], [2]], ["a"], "1 custom_ids for 2 processes"),
        ([[1]], [2], r"custom_ids\[0\]"),
    ],
)
def test_bad_input_starts_nothing(world: World, order: Any, arguments: Any, custom_ids: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        world.start_many(order, arguments, custom_ids=custom_ids)
    assert world.counts()["processes"] == 0


@pytest.mark.parametrize("done", [True, False])
def test_a_reply_that_is_lost_once(world: World, order: Any, ordered: bool, done: bool) -> None:
    real, calls = Processes.insert_many, []

    def lost(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        if len(calls) == 1:
            if done:
                real(*args, **kwargs)
            raise StoreUnavailable("lost") from AutoReconnect("lost")
        return real(*args, **kwargs)

    with patch.object(Processes, "insert_many", lost):
        started = world.start_many(order, [[1], [2], [3]], custom_ids=["a", "b", "c"], ordered=ordered)
    assert [(one.was_there, one.error) for one in started] == [(False, None)] * 3
    world.pump()
    assert [world.app.result(one.id, timeout=0)[0] for one in started] == [1, 2, 3]


def test_the_database_is_away(world: World, order: Any, ordered: bool) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    with (
        patch.object(starting, "CONFIRMED_TIMEOUT", 0.0),
        patch.object(Processes, "insert_many", away),
        pytest.raises(ServerUnavailable, match="0 processes of type order are started, and later ones"),
    ):
        world.start_many(order, [[1]], ordered=ordered)


def test_a_start_does_not_wait_for_what_follows_it(world: World, order: Any) -> None:
    started = [world.app.start(order, number) for number in range(5)]
    started += [one.id for one in world.app.start_many(order, [[number] for number in range(5)])]
    assert world.app.registrar.wait(10)
    assert world.counts() == dict.fromkeys(("processes", "tasks", "decisions", "graphs"), 10)
    wait_until(lambda: world.redis.llen("order") == 10, 10, "the messages")
    world.pump()
    assert len([world.app.result(one, timeout=0) for one in started]) == 10


def test_a_fork_registers_what_it_starts_itself(world: World, order: Any) -> None:
    world.app.start(order, 1)
    of_parent = world.app.registrar
    if (child := os.fork()) == 0:
        try:
            of_parent._registering.acquire(blocking=False)  # as it may be at the fork: the parent alone releases it
            world.app.start(order, 2)
            os._exit(0 if of_parent.wait(10) and world.app.registrar.wait(10) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert world.app.registrar.wait(10)
    assert world.counts()["decisions"] == 2


def test_what_cannot_be_registered_ends_nothing(world: World, order: Any) -> None:
    one = Registrar(world.app.resources)
    process = world.process(world.app.start(order, 1))
    assert world.app.registrar.wait(10)
    with patch("recovery.engine.start.registration.register_all", side_effect=RuntimeError):
        one.add([process])
        wait_until(lambda: one._failed, 10, "a try that fails")
    assert one.wait(10), "it is tried again"
    one.add([process])
    assert one.wait(10)
