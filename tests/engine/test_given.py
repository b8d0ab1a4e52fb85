"""What is given to the public methods is checked before anything is asked of a server: in a query, a dict would match
what belongs to others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from recovery import Recovery
from recovery.engine.overrides import ActorOverrides, ProcessTypeOverrides
from recovery.errors import InputError, UnknownActor
from recovery.health import look
from tests.store.writing import contents
from tests.world import World

NO_TEXTS: list[Any] = [
    {"$gt": ""},
    {"$ne": None},
    b"order",
    ["order"],
    ("order",),
    5,
    True,
    1.5,
    object(),
    "\ud800",
    "x" * 501,
    "",
]
CALLS: dict[str, Callable[[Recovery, Any], Any]] = {
    "result": lambda a, value: a.result(value, timeout=0),
    "restart": lambda a, value: a.restart(value),
    "abort": lambda a, value: a.abort(value, "no longer wanted"),
    "start": lambda a, value: a.start(value),
    "custom id": lambda a, value: a.start("order", custom_id=value),
    "find_actor": lambda a, value: a.find_actor(value),
    "actor": lambda a, value: a.actor(value)(len),
    "process": lambda a, value: a.process(value)(len),
    "settings": lambda _, value: Recovery(value),
    "check": lambda a, value: look(a.resources, value),
    "actor's settings": lambda a, value: ActorOverrides(a.resources).get(value),
    "blocked": lambda a, value: ActorOverrides(a.resources).block(value),
    "process type's settings": lambda a, value: ProcessTypeOverrides(a.resources).get(value),
}


@pytest.fixture(autouse=True)
def strangers(world: World) -> None:
    """Processes of somebody else, one finished and one that waits."""
    world.app.process("order")(lambda: "secret")
    world.run(world.app.find_actor("order"))
    world.app.start("order")


@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_text_is_asked_of_nobody(world: World, call: str) -> None:
    before = contents(world.store, "processes")
    for value in NO_TEXTS:
        with pytest.raises(InputError) as refused:
            CALLS[call](world.app, value)
        assert "secret" not in str(refused.value)
    assert contents(world.store, "processes") == before


@pytest.mark.parametrize("task", [{"$gt": ""}, b"start", "", 5, "\ud800"])
def test_a_task_that_is_no_text(world: World, task: Any) -> None:
    process_id = world.app.start("order")
    with pytest.raises(InputError):
        world.app.restart(process_id, task)


@pytest.mark.parametrize("timeout", ["5", {"$gt": 0}, -1, True, float("nan")])
def test_a_timeout_that_is_no_time(world: World, timeout: Any) -> None:
    with pytest.raises(InputError, match="timeout="):
        world.app.result(world.app.start("order"), timeout=timeout)


@pytest.mark.parametrize(
    "options",
    [{"delay": "5"}, {"delay": True}, {"delay": {"$gt": 0}}, {"eta": "now"}, {"eta": 5}, {"eta": date.today()}],
)
def test_options_of_other_types(world: World, options: Any) -> None:
    with pytest.raises(InputError, match="options"):
        world.app.find_actor("order").options(**options)


def test_a_name_that_nobody_has_is_not_shown_whole(world: World) -> None:
    with pytest.raises(UnknownActor) as unknown:
        world.app.find_actor("\x1b[31m" + "x" * 400)
    assert "\x1b" not in str(unknown.value)
