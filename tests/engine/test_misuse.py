"""What would pass silently and be found out late is refused at once."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from recovery import InputError, Promise, Recovery, Settings, heartbeat
from recovery.errors import ServerUnavailable
from tests.world import World

USES: list[Callable[[Any], object]] = [
    bool,
    str,
    len,
    list,
    lambda p: f"{p}",
    lambda p: p["key"],
    lambda p: 1 if p else 2,
    lambda p: p + 1,
    lambda p: 2 * p,
    lambda p: p - p,
    lambda p: p < 1,
    lambda p: -p,
    int,
    round,
    lambda p: p.value,
    lambda p: p.get(),
]


@pytest.mark.parametrize("use", USES)
def test_a_promise_is_not_a_value(use: Callable[[Any], object]) -> None:
    with pytest.raises(InputError, match="promise of price has no value yet: pass it to a task"):
        use(Promise("task", "price"))


def test_a_promise_can_be_copied() -> None:
    promise = Promise("task", "price")
    assert copy.deepcopy(promise) == promise == pickle.loads(pickle.dumps(promise))
    assert not hasattr(promise, "__array__") and not hasattr(promise, "_repr_html_"), "libraries may ask"


def test_a_promise_can_be_shown_and_compared() -> None:
    assert repr(Promise("task", "price")) == "Promise(task_id='task', actor='price')"
    assert Promise("task") == Promise("task") != Promise("other")


def test_arguments_that_the_function_does_not_take(world: World) -> None:
    @world.app.process()
    def order(number: int, *, urgent: bool = False) -> int:
        return number + urgent

    for args, kwargs in [((), {}), ((1, 2), {}), ((1,), {"urgnet": True})]:
        with pytest.raises(InputError, match=r"^order\(number.*: (missing|too many|got an unexp)"):
            world.start(order, *args, **kwargs)
    assert world.store.database["processes"].count_documents({}) == 0


def test_arguments_of_a_child_that_its_function_does_not_take(world: World) -> None:
    @world.app.actor()
    def price(number: int) -> int:
        return number

    @world.app.process()
    def order() -> Promise:
        return price.schedule()

    error = world.bring_to_end(world.start(order)).error
    assert error is not None
    assert "missing a required argument: 'number'" in error.message


def test_a_running_actor_does_not_wait_for_a_process(world: World) -> None:
    """Its slot may be the only one: neither would end."""

    @world.app.process()
    def price() -> int:
        return 7

    @world.app.process()
    def order(process_id: str, timeout: float | None) -> object:
        return world.app.result(process_id, timeout)

    other = world.start(price)
    for timeout in (0.1, None):
        process_id = world.start(order, other, timeout)
        world.take_one("order")
        error = world.process(process_id).error
        assert error is not None and error.kind == "InputError"
        assert "would hold its slot while it waits; schedule tasks instead" in error.message
    process_id = world.start(order, other, 0)
    world.take_one("order")
    retry = world.decisions(process_id)["start"].retry
    assert retry is not None and retry.kind == "ResultTimeout", "who only asks does not wait"


def test_a_child_process_of_an_actor_schedules_nothing_and_does_not_beat(world: World) -> None:
    @world.app.actor()
    def price() -> int:
        return 7

    def asked(step: Callable[[], object]) -> str:
        read, write = os.pipe()
        if (pid := os.fork()) == 0:
            try:
                step()
                os.write(write, b"done")
            except BaseException as error:
                os.write(write, f"{type(error).__name__}: {error}".encode())
            finally:
                os._exit(0)
        os.close(write)
        os.waitpid(pid, 0)
        with os.fdopen(read, "rb") as told:
            return told.read().decode()

    @world.app.process()
    def order() -> list[str]:
        return [asked(price.schedule), asked(heartbeat)]

    scheduled, beaten = world.run(order)
    refusal = "was called in a child process of order; call it in the process that runs the actor"
    assert scheduled.startswith(f"NotInActor: price.schedule(...) {refusal}")
    assert beaten.startswith(f"NotInActor: heartbeat() {refusal}")


def test_a_start_that_the_database_does_not_confirm(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("recovery.engine.start.start"), "CONFIRMED_TIMEOUT", 0.5)
    away = settings.model_copy(update={"mongo_uri": "mongodb://127.0.0.1:9/?serverSelectionTimeoutMS=100"})
    app = Recovery(away)

    @app.process()
    def order() -> int:
        return 1

    with pytest.raises(ServerUnavailable, match=r"may not have been started.*custom_id"):
        app.start(order)
