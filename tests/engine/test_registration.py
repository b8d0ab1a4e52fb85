"""Registering actors and process types: what is wrong is told where it is written, with what to do."""

from __future__ import annotations

import asyncio
import functools
import math
import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from recovery import Recovery
from recovery.engine.actors.actor import preferences
from recovery.errors import InputError, NotInActor, UnknownActor
from recovery.limits import LONGEST
from recovery.records import ActorPreferences, ProcessTypePreferences
from recovery.settings import load

TIME = "at least 0.001 seconds, up to 10 years (316,224,000)"


@pytest.fixture
def app() -> Recovery:
    """An application of servers that are never asked."""
    return Recovery(load())


def add(a: int, b: int = 1) -> int:
    """Adds."""
    return a + b


def test_an_actor_is_still_a_function(app: Recovery) -> None:
    actor = app.actor()(add)
    assert (actor(2), actor(2, b=3), actor.name, actor.__doc__) == (3, 5, "add", "Adds.")
    assert actor.__wrapped__ is add  # type: ignore[attr-defined]
    assert app.find_actor("add") is actor
    assert app.process_types == []


def test_settings_are_kept(app: Recovery) -> None:
    actor = app.actor("sum", worker_timeout=5, accept_first=False, max_work_timeouts=2)(add)
    assert actor.preferences == ActorPreferences(
        id="sum", worker_timeout=5, accept_first=False, max_work_timeouts=2
    )  # fmt: skip
    process = app.process(idle_timeout=7)(add)
    assert (process.process_type, app.process_types) == (ProcessTypePreferences(id="add", idle_timeout=7), ["add"])
    late = app.process("late", process_timeout=9, break_after_process_timeout=True, task_timeout=5)(add)
    assert late.process_type == ProcessTypePreferences(
        id="late", idle_timeout=app.settings.idle_timeout, process_timeout=9, break_after_process_timeout=True
    )
    assert late.preferences == ActorPreferences(id="late", task_timeout=5)


def test_two_actors_of_one_name(app: Recovery) -> None:
    app.actor("sum")(add)
    with pytest.raises(InputError) as refused:
        app.process("sum")(test_two_actors_of_one_name)
    assert str(refused.value) == (
        "two actors are named 'sum': tests.engine.test_registration.add and "
        "tests.engine.test_registration.test_two_actors_of_one_name; give one of them another name with "
        "@app.actor('name')"
    )
    assert app.find_actor("sum").function is add


@pytest.mark.parametrize("name", ["1st", "a b", "a/b", "a:b", "-a", "é", "a\n", "x" * 101])
def test_a_bad_name(app: Recovery, name: str) -> None:
    with pytest.raises(InputError, match="use letters, digits"):
        app.actor(name)(add)
    assert app.actors == {}


@pytest.mark.parametrize("name", ["a", "_a", "shop.orders.add-1", "x" * 100])
def test_a_good_name(app: Recovery, name: str) -> None:
    assert app.actor(name)(add).name == name


async def waits() -> int:
    return 1


async def waits_and_yields() -> AsyncIterator[int]:
    yield 1


def yields() -> Iterator[int]:
    yield 1


class Waits:
    async def __call__(self) -> int:
        return 1


NO_VALUE: list[tuple[Callable[[], Any], str]] = [
    (waits, "actor odd is `async def`, and workers call plain functions: write `def odd(...)`, which runs it by"),
    (functools.partial(waits), "actor odd is `async def`"),
    (Waits(), "actor odd is `async def`"),
    (waits_and_yields, "actor odd is a generator (it has a `yield`), and a task has one value: return a list"),
    (yields, "actor odd is a generator"),
]


@pytest.mark.parametrize(("function", "told"), NO_VALUE, ids=lambda one: getattr(one, "__name__", None))
def test_a_function_whose_call_gives_no_value(app: Recovery, function: Callable[[], Any], told: str) -> None:
    """Each of its tasks would end with an error, and break its process."""
    for register in (app.actor, app.process):
        with pytest.raises(InputError, match=re.escape(told)):
            register("odd")(function)
    assert app.actors == {}


def test_what_runs_such_a_function_itself(app: Recovery) -> None:
    @functools.wraps(waits)
    def run() -> int:
        return asyncio.run(waits())

    assert app.actor("run")(run)() == 1


def test_a_lambda_needs_a_name(app: Recovery) -> None:
    with pytest.raises(InputError, match="actor name '<lambda>'"):
        app.actor()(lambda: None)


@pytest.mark.parametrize("register", [Recovery.actor, Recovery.process])
def test_without_parentheses(app: Recovery, register: Any) -> None:
    """Told where it is written, and not when somebody first calls the function."""
    with pytest.raises(InputError) as refused:
        register(app, add)
    assert (
        str(refused.value)
        == "tests.engine.test_registration.add: write the decorator with parentheses, as in @app.actor()"
    )


@pytest.mark.parametrize("register", [Recovery.actor, Recovery.process])
@pytest.mark.parametrize(
    ("unknown", "told"),
    [
        ("worker_time", "actor add: no setting is named 'worker_time'; did you mean 'worker_timeout'?"),
        ("max_timeouts", "actor add: no setting is named 'max_timeouts'; did you mean 'max_work_timeouts'?"),
        ("autoheartbeat", "actor add: no setting is named 'autoheartbeat'; did you mean 'auto_heartbeat'?"),
        ("id", "actor add: no setting is named 'id'; there are: "),
        ("zzz", "actor add: no setting is named 'zzz'; there are: accept_first, auto_heartbeat, "),
    ],
)
def test_an_unknown_setting(app: Recovery, register: Any, unknown: str, told: str) -> None:
    with pytest.raises(InputError) as refused:
        register(app, **{unknown: 1})(add)
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"worker_timeout": value}, f"actor add: worker_timeout must be {TIME}, not {value!r}")
        for value in (
            0,
            -1,
            1e-300,
            math.nan,
            math.inf,
            1e15,
            LONGEST + 1,
            None,
            True,
            Decimal(5),
        )
    ]
    + [
        ({"max_work_timeouts": value}, f"actor add: max_work_timeouts must be from 1 to 1,000,000,000, not {value!r}")
        for value in (0, -3, 1_000_000_001, 99999999999999999999999, 1.5, "3", None, True)
    ]
    + [
        (
            {"max_work_timeouts": 10**5000},
            "actor add: max_work_timeouts must be from 1 to 1,000,000,000, not a number of over 4,983 digits",
        ),
        (
            {"task_timeout": 1e15},
            "actor add: task_timeout must be 0 (off) or at least 0.001 seconds, up to 10 years (316,224,000), "
            "not 1000000000000000.0",
        ),
        (
            {"requeue_rate": 1e10},
            "actor add: requeue_rate must be 0 (off) or more tasks a second, up to 1,000,000,000, not 10000000000.0",
        ),
    ]
    + [
        ({name: value}, f"actor add: {name} must be True or False, not {value!r}")
        for name in ("accept_first", "idempotent", "auto_heartbeat")
        for value in ("no", 0, None)
    ]
    + [
        (
            {"restart_after_work_timeout": value},
            f"actor add: restart_after_work_timeout must be True or False, not {value!r}",
        )
        for value in ("no", 0)
    ],
)
def test_a_bad_value(app: Recovery, setting: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as refused:
        app.actor(**setting)(add)
    assert str(refused.value) == told


@pytest.mark.parametrize("idle_timeout", [0, -1, 1e15, math.nan, math.inf, True, "0s", timedelta(0)])
def test_a_bad_idle_timeout(app: Recovery, idle_timeout: Any) -> None:
    with pytest.raises(
        InputError, match=r"process type add: idle_timeout must be at least 0\.001 seconds, up to 10 years"
    ):
        app.process(idle_timeout=idle_timeout)(add)


@pytest.mark.parametrize(
    "name",
    [
        *("recovery", "recovery.nudge", "recovery.sweep", "recovery.x", "spark", "unacked", "unacked_index"),
        *("unacked_mutex", "celery", "celery.chain", "celeryev.x", "_kombu.binding.celery", "x.celery.pidbox"),
        *("reply.pidbox", "", "a b", "a\n", "a" * 101, "é", "1a", "a/b", "a\x06\x163", 5, b"add"),
    ],
)
def test_a_name_that_can_not_be(name: Any) -> None:
    """A queue is a key of Redis: under these names others keep what is no message of ours."""
    with pytest.raises(InputError, match="actor name") as refused:
        preferences(name)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("name", ["recovery_mail", "celery_stalk", "sparkle", "unacked_orders", "shop.add", "_x"])
def test_a_name_that_only_looks_like_one(name: str) -> None:
    assert preferences(name).id == name


def test_an_unknown_actor(app: Recovery) -> None:
    with pytest.raises(UnknownActor, match="no actor is named 'ad'; the app has none"):
        app.find_actor("ad")
    app.actor()(add)
    with pytest.raises(UnknownActor, match="no actor is named 'ad'; did you mean 'add'"):
        app.find_actor("ad")


class Packer:
    """A class with methods, none of which is a function of its own."""

    def pack(self, item: str) -> str:
        return item

    @classmethod
    def packs(cls, item: str) -> str:
        return item


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (Packer, "is a class, and its tasks would have objects as values: register a function"),
        (Packer().pack, "is a method of an object, and each worker would have another object: register a function"),
        (Packer.packs, "is a method of an object"),
        (vars(Packer)["packs"], "which can't be called: register a function"),
    ],
)
def test_what_is_no_function(app: Recovery, function: Any, said: str) -> None:
    for register in (app.actor("pack"), app.process("pack")):
        with pytest.raises(InputError, match=f"^actor pack is .*{said.removeprefix('is ')}"):
            register(function)
    assert app.actors == {}


def test_a_delay_as_a_text(app: Recovery) -> None:
    assert app.actor()(add).options(delay="1.5m")._delay == 90


def test_scheduling_outside_an_actor(app: Recovery) -> None:
    actor = app.actor()(add)
    for schedule in (actor.schedule, actor.options(delay=1).schedule):
        with pytest.raises(NotInActor, match=r"add\.schedule\(\.\.\.\) was called outside a running actor"):
            schedule(1)


@pytest.mark.parametrize(
    "times",
    [
        {"eta": datetime(2026, 1, 1)},
        {"eta": datetime.now(UTC) + timedelta(seconds=LONGEST, days=1)},
        {"eta": datetime.max.replace(tzinfo=UTC)},
        {"eta": datetime.max.replace(tzinfo=timezone(timedelta(hours=-9)))},
        {"eta": datetime.min.replace(tzinfo=timezone(timedelta(hours=9)))},
        {"delay": -1},
        {"delay": LONGEST + 1},
        {"delay": 1e12},
        {"delay": math.nan},
        {"delay": timedelta(seconds=-1)},
        {"delay": True},
        {"delay": "soon"},
        {"delay": Decimal(1)},
        {"delay": Fraction(1, 2)},
        {"delay": math.inf},
        {"delay": 10**5000},
        {"eta": "2026-01-01"},
    ],
)
def test_bad_times(app: Recovery, times: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"add\.options\("):
        app.actor()(add).options(**times)


def test_times_make_another_actor_of_the_same_name(app: Recovery) -> None:
    actor = app.actor()(add)
    later = actor.options(delay=timedelta(minutes=1), eta=datetime(2026, 1, 1, tzinfo=UTC))
    assert (later.name, later(1), later is actor) == ("add", 2, False)
    assert app.actors == {"add": actor}
