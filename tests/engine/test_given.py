"""What is given to the public methods is checked before anything is asked of a server: in a query, a dict would match
what belongs to others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from recovery import Recovery
from recovery.engine.operators.overrides import ActorOverrides, ProcessTypeOverrides
from recovery.errors import InputError, ProcessBroken, SettingsError, UnknownActor
from recovery.health import look
from recovery.records import Failure, Promise
from recovery.settings import load
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
    world.start("order")


@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_text_is_asked_of_nobody(world: World, call: str) -> None:
    before = contents(world.store, "processes")
    for value in NO_TEXTS:
        with pytest.raises(InputError) as refused:
            CALLS[call](world.app, value)
        assert "secret" not in str(refused.value)
    assert contents(world.store, "processes") == before
    outcomes = [entry["outcome"] for entry in contents(world.store, "auditLog").values()]
    assert all(outcome.startswith("refused: ") for outcome in outcomes), "who asked is on record, with what he was told"


@pytest.mark.parametrize("task", [{"$gt": ""}, b"start", "", 5, "\ud800"])
def test_a_task_that_is_no_text(world: World, task: Any) -> None:
    process_id = world.start("order")
    with pytest.raises(InputError):
        world.app.restart(process_id, task)


@pytest.mark.parametrize("timeout", ["soon", {"$gt": 0}, -1, True, float("nan"), Decimal(5)])
def test_a_timeout_that_is_no_time(world: World, timeout: Any) -> None:
    with pytest.raises(InputError, match="timeout="):
        world.app.result(world.start("order"), timeout=timeout)


@pytest.mark.parametrize(
    "options",
    [
        {"delay": "soon"},
        {"delay": "-5s"},
        {"delay": True},
        {"delay": {"$gt": 0}},
        {"eta": "now"},
        {"eta": 5},
        {"eta": date.today()},
    ],
)
def test_options_of_other_types(world: World, options: Any) -> None:
    with pytest.raises(InputError, match="options"):
        world.app.find_actor("order").options(**options)


class Changing(str):
    """A text whose parts, form and likeness are another's; as a part it gives a query."""

    def __getitem__(self, _: Any) -> Any:
        return {"$gt": ""}

    def __eq__(self, _: object) -> bool:
        return False

    __hash__ = str.__hash__

    def __format__(self, _: str) -> str:
        return "another"

    def encode(self, *_: Any, **__: Any) -> bytes:
        return b"another"

    def strip(self, *_: Any) -> str:
        return "another"

    def __str__(self) -> str:
        return Changing("another")

    __repr__ = __str__


def test_a_text_that_changes_is_kept_as_it_was_when_it_was_checked(world: World) -> None:
    process_id = world.start("order", custom_id=Changing("mine"))
    world.app.abort(Changing(process_id), Changing("why"))
    with pytest.raises(ProcessBroken) as broken:
        world.app.result(Changing(process_id), timeout=5)
    assert (broken.value.kind, broken.value.message, broken.value.state) == ("Aborted", "why", "aborted")
    stored = world.store.database["processes"].find_one({"_id": process_id})
    assert stored is not None and (stored["customId"], stored["error"]["message"]) == ("mine", "why")
    with pytest.raises(InputError, match=f"^process {process_id} is aborted"):
        world.app.restart(Changing(process_id), Changing("start"))
    with pytest.raises(InputError, match="reason="):
        world.app.abort(process_id, Changing(" "))
    named = world.app.actor(Changing("named"))(len)
    assert type(named.name) is str and world.app.find_actor("named") is named


def test_so_is_a_time(world: World) -> None:
    class Moment(datetime):
        def astimezone(self, *_: Any) -> Any:
            return datetime.now(UTC)

    class Span(timedelta):
        def total_seconds(self) -> Any:
            return {"$gt": 0}

    class Seconds(float):
        def __le__(self, _: object) -> bool:
            return True

        __ge__ = __le__

    actor = world.app.find_actor("order")
    later = actor.options(eta=Moment.now(UTC))
    assert type(later._eta) is datetime
    with pytest.raises(InputError, match="10 years"):
        actor.options(eta=Moment(9000, 1, 1, tzinfo=UTC))
    assert type(actor.options(delay=Span(seconds=5))._delay) is float
    with pytest.raises(InputError, match="options"):
        actor.options(delay=Seconds(1e300))
    with pytest.raises(InputError, match="timeout="):
        world.app.result("p", timeout=Seconds(-1))


def test_an_error_whose_text_changes_is_described(world: World) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            return Changing("what it says")

    @world.app.process()
    def odd() -> None:
        raise Odd

    process_id = world.start("odd")
    world.pump()
    with pytest.raises(ProcessBroken) as broken:
        world.app.result(process_id, timeout=5)
    assert (broken.value.kind, broken.value.message) == ("Odd", "what it says")


class Raises:
    def __repr__(self) -> str:
        raise ZeroDivisionError

    __str__ = __fspath__ = __repr__


@pytest.mark.parametrize(
    "call",
    [
        lambda app: app.actor(worker_timeout=Raises())(len),
        lambda app: app.process(process_timeout=Raises())(len),
        lambda app: app.actor()(Raises()),
        lambda app: app.actor()(functools.partial(len)),
        lambda app: app.actor(functools.partial(len)),
        lambda app: app.find_actor("order").options(fallible=Raises()),
        lambda app: app.start("free", {Raises(): 1}),
        lambda app: app.start("free", Promise(Raises())),  # type: ignore[arg-type]
        lambda app: app.start("free", Failure("k", Raises(), "a", "t")),  # type: ignore[arg-type]
        lambda _: load(data_dir=Raises()),
        lambda _: load(database=Raises()),
        lambda _: load(message_key=Raises()),
    ],
)
def test_what_can_not_be_shown_is_refused_all_the_same(world: World, call: Callable[[Recovery], Any]) -> None:
    world.app.process("free")(lambda *_: None)
    with pytest.raises((InputError, SettingsError)):
        call(world.app)


def test_a_name_that_nobody_has_is_not_shown_whole(world: World) -> None:
    with pytest.raises(UnknownActor) as unknown:
        world.app.find_actor("\x1b[31m" + "x" * 400)
    assert "\x1b" not in str(unknown.value)
