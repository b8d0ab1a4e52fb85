"""What would pass silently and be found out late is refused at once."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from recovery import InputError, Promise, Recovery, Settings
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
]


@pytest.mark.parametrize("use", USES)
def test_a_promise_is_not_a_value(use: Callable[[Any], object]) -> None:
    with pytest.raises(InputError, match="promise of price has no value yet: pass it to a task"):
        use(Promise("task", "price"))


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


def test_a_start_that_the_database_does_not_confirm(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("recovery.engine.lifecycle.start"), "CONFIRMED_TIMEOUT", 0.5)
    away = settings.model_copy(update={"mongo_uri": "mongodb://127.0.0.1:9/?serverSelectionTimeoutMS=100"})
    app = Recovery(away)

    @app.process()
    def order() -> int:
        return 1

    with pytest.raises(ServerUnavailable, match=r"may not have been started.*custom_id"):
        app.start(order)
