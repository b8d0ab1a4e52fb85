"""Processes of every form come to their result: by message, on the spot, with promises anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery import Recovery
from recovery.engine.run.batch import Batch
from recovery.records import ProcessState, Promise
from tests.examples import examples
from tests.world import World, by_message_only, check_quiet, nothing_on_the_spot


@pytest.fixture(params=["on the spot", "by message"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ready tasks are run by who made them ready, or go through Redis."""
    with nullcontext() if request.param == "on the spot" else by_message_only():
        yield


@pytest.fixture
def add(app: Recovery) -> Any:
    return app.actor("add")(lambda *numbers: sum(numbers))


@pytest.fixture
def run(world: World) -> Callable[..., Any]:
    """Register a function as a process type, run a process of it, and check that all of it is at rest."""

    def run(function: Callable[..., Any], *args: Any) -> Any:
        process_id = world.start(world.app.process()(function), *args)
        world.pump()
        assert world.process(process_id).state is ProcessState.FINISHED, "without a scanner"
        result = world.app.result(process_id, timeout=0)
        check_quiet(world, process_id)
        return result

    return run


def test_a_loop_by_continuation(app: Recovery, run: Any) -> None:
    @app.actor()
    def factorial(number: int, so_far: int = 1) -> Any:
        return factorial.schedule(number - 1, so_far * number) if number > 1 else so_far

    def loop(number: int) -> Any:
        return factorial.schedule(number)

    assert run(loop, 20) == 2432902008176640000


def test_a_loop_over_values(app: Recovery, add: Any, run: Any) -> None:
    """A decider that looks at a promised value and schedules more until it is satisfied."""

    @app.actor()
    def until(limit: int, value: int) -> Any:
        return value if value >= limit else until.schedule(limit, add.schedule(value, value))

    def double_until(limit: int) -> Any:
        return until.schedule(limit, 1)

    assert run(double_until, 100) == 128


@pytest.mark.parametrize(("number", "expected"), [(3, "small"), (30, "large")])
def test_a_condition(app: Recovery, run: Any, number: int, expected: str) -> None:
    small, large = (app.actor(name)(lambda name=name: name) for name in ("small", "large"))

    @app.actor()
    def choose(value: int) -> Any:
        return small.schedule() if value < 10 else large.schedule()

    def by_size(value: int) -> Any:
        return {"size": choose.schedule(value)}

    assert run(by_size, number) == {"size": expected}


def test_promises_anywhere_in_arguments_and_results(app: Recovery, add: Any, run: Any) -> None:
    @app.actor()
    def echo(*args: Any, **kwargs: Any) -> list[Any]:
        return [list(args), kwargs]

    def nested() -> Any:
        one, two = add.schedule(1), add.schedule(1, 1)
        deep = echo.schedule([one, {"a.b": [two, {"$c": one}]}], key={"x": (two,)})
        return {"deep": [deep], "one": one, "again": [one, one], "none": None}

    assert run(nested) == {
        "deep": [[[[1, {"a.b": [2, {"$c": 1}]}]], {"key": {"x": [2]}}]],
        "one": 1,
        "again": [1, 1],
        "none": None,
    }


def test_a_list_of_promises(app: Recovery, add: Any, run: Any) -> None:
    @app.actor()
    def many(count: int) -> list[Promise]:
        return [add.schedule(n, n) for n in range(count)]

    def doubled(count: int) -> Any:
        return add.schedule(*[many_sum.schedule(many.schedule(count)), 100])

    many_sum = app.actor("many_sum")(lambda numbers: sum(numbers))
    assert run(doubled, 12) == 2 * sum(range(12)) + 100


def test_promises_of_promises(app: Recovery, add: Any, run: Any) -> None:
    """A value that promises a value that promises: who waits for the first waits for the last."""

    @app.actor()
    def down(depth: int) -> Any:
        return [down.schedule(depth - 1), add.schedule(depth)] if depth else "end"

    @app.actor()
    def flat(nested: Any) -> list[Any]:
        return [*flat(nested[0]), nested[1]] if isinstance(nested, list) else [nested]

    def ladder(depth: int) -> Any:
        return flat.schedule(down.schedule(depth))

    assert run(ladder, 6) == ["end", 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("nothing", [[], {}, None, 0, "", False])
def test_an_empty_fan_out(app: Recovery, run: Any, nothing: Any) -> None:
    @app.actor()
    def children() -> Any:
        return nothing

    count = app.actor("count")(lambda value: [value])

    def parent() -> Any:
        return count.schedule(children.schedule())

    assert run(parent) == [nothing]


def test_children_that_nobody_waits_for_end_too(app: Recovery, run: Any) -> None:
    ran: list[int] = []
    note = app.actor("note")(lambda number: ran.append(number))

    def forget() -> str:
        for number in range(5):
            note.schedule(number)
        return "done"

    assert run(forget) == "done"
    assert sorted(ran) == list(range(5))


def test_an_actor_called_as_a_function_runs_in_place(add: Any, run: Any, world: World) -> None:
    def direct() -> Any:
        return add(1, 2) + add(3)

    assert run(direct) == 6
    assert world.counts()["tasks"] == 1


def test_pythons_own_functions_are_actors_too(app: Recovery, run: Any) -> None:
    """Those that tell nothing of their arguments as well."""
    largest, length = app.actor("largest")(max), app.actor("length")(len)

    def own(numbers: list[int]) -> Any:
        return [largest.schedule(numbers), length.schedule(numbers)]

    assert run(own, [3, 1, 2]) == [3, 3]


PLANS = st.lists(st.sets(st.integers(0, 9), max_size=4), min_size=1, max_size=8)


@given(plan=PLANS)
@examples(8)
def test_any_plan_of_promises(world: World, plan: list[set[int]]) -> None:
    """Each task sums what it waits for, and one; so does Python."""
    app = world.app
    if "plus_one" not in app.actors:
        app.actor("plus_one")(lambda *numbers: sum(numbers) + 1)

        @app.process()
        def planned(plan: list[list[int]]) -> Any:
            promises: list[Promise] = []
            for waits in plan:
                promises.append(app.actors["plus_one"].schedule(*(promises[n] for n in waits)))
            return promises

    waits = [sorted(n for n in some if n < place) for place, some in enumerate(plan)]
    expected: list[int] = []
    for some in waits:
        expected.append(sum(expected[n] for n in some) + 1)
    process_id = world.start("planned", waits)
    world.pump()
    assert app.result(process_id, timeout=0) == expected


NODES: st.SearchStrategy[Any] = st.recursive(
    st.builds(lambda own: {"own": own, "children": []}, st.integers(0, 9)),
    lambda inner: st.fixed_dictionaries(
        {
            "own": st.integers(0, 9),
            "children": st.lists(st.tuples(inner, st.sets(st.integers(0, 2), max_size=2)), min_size=1, max_size=3),
            "returns": st.sampled_from(["value", "one", "all"]),
            "which": st.integers(0, 2),
        }
    ),
    max_leaves=6,
)


def perform(node: Any, inputs: list[Any], schedule: Callable[..., Any]) -> Any:
    """What a node comes to: itself and its inputs, or what one or all of its children come to."""
    base = node["own"] + sum(flat(inputs))
    promises: list[Any] = []
    for child, waits in node["children"]:
        promises.append(schedule(child, [promises[n] for n in sorted(waits) if n < len(promises)]))
    if not promises or node["returns"] == "value":
        return base
    return promises[node["which"] % len(promises)] if node["returns"] == "one" else [base, *promises]


def flat(value: Any) -> list[int]:
    return [number for item in value for number in flat(item)] if isinstance(value, list) else [value]


def size(node: Any) -> int:
    return 1 + sum(size(child) for child, _ in node["children"])


@given(node=NODES)
@examples(12)
def test_any_program(world: World, node: Any) -> None:
    """Deciders within deciders, which wait for each other and promise what their children promise: as Python."""
    node = json.loads(json.dumps(node, default=sorted))
    app = world.app
    if "program" not in app.actors:
        app.actor("program")(lambda node, inputs: perform(node, inputs, app.actors["program"].schedule))
        app.process("run")(lambda node: app.actors["program"].schedule(node, []))

    def directly(node: Any, inputs: list[Any]) -> Any:
        return perform(node, inputs, directly)

    process_id = world.start("run", node)
    world.pump()
    assert app.result(process_id, timeout=0) == directly(node, [])
    assert len(world.decisions(process_id)) == 1 + size(node)
    check_quiet(world, process_id)


def test_the_ways_differ(world: World) -> None:
    """What the parameter of these tests changes: how many messages a process of three tasks needs."""
    step = world.app.actor("step")(lambda value: value)
    process = world.app.process("three")(lambda: step.schedule(step.schedule(1)))
    process_id = world.start(process)
    assert world.pump() == (3 if Batch._room_alone is nothing_on_the_spot else 1)
    assert world.app.result(process_id, timeout=0) == 1
