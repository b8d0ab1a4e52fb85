"""A process done again from one of its tasks: what depends on it runs again, and nothing else."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery import Promise
from recovery.engine.operations.redo import redo
from recovery.records import ProcessState
from recovery.settings import Settings
from tests.store.writing import contents
from tests.world import World, by_message_only, check_quiet

Node = dict[str, Any]
"""A task: its `name`, the siblings before it that it waits for (`deps`, by place), what it schedules (`children`), and
which of those it promises for its value (`gives`)."""


class Program:
    """Runs any tree of nodes; what each gives tells of all that it was made of, and in which version."""

    def __init__(self, made: Settings) -> None:
        self.world = World(made)
        self.versions, self.ran = Counter[str](), Counter[str]()
        node = self.world.app.actor("node")(self.run)
        self.node = node
        self.world.app.process("tree")(self.run)
        self.world.tell()

    def run(self, of: Node, inputs: list[Any]) -> Any:
        self.ran[of["name"]] += 1
        promises: list[Promise] = []
        for child in of["children"]:
            promises.append(self.node.schedule(child, [promises[place] for place in child["deps"]]))
        if of["gives"]:
            return [promises[place] for place in of["gives"]]
        return f"{of['name']}{self.versions[of['name']]}({','.join(map(shown, inputs))})"

    def start(self, root: Node) -> str:
        return self.world.app.start("tree", root, [])

    def names(self, process_id: str) -> dict[str, str]:
        """{task: its node's name}."""
        found = contents(self.world.store, "tasks").values()
        return {
            one["_id"].partition("/")[2]: json.loads(one["args"])[0][0]["name"]
            for one in found
            if one["_id"].startswith(process_id)
        }


def shown(value: Any) -> str:
    return f"[{','.join(map(shown, value))}]" if isinstance(value, list) else str(value)


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> Node:
    count = [0]

    def node(left: int, before: int) -> Node:
        count[0] += 1
        name = f"n{count[0]}"
        number = draw(st.integers(0, 3)) if left else 0
        children = [node(left - 1, place) for place in range(number)]
        gives = draw(st.lists(st.integers(0, number - 1), max_size=2, unique=True)) if number else []
        deps = draw(st.lists(st.integers(0, before - 1), max_size=2, unique=True)) if before else []
        return {"name": name, "deps": deps, "children": children, "gives": gives}

    return node(depth, 0)


def walk(of: Node) -> Iterator[Node]:
    yield of
    for child in of["children"]:
        yield from walk(child)


def evaluate(of: Node, inputs: list[Any], made_of: set[str], versions: Counter[str]) -> tuple[Any, set[str]]:
    """What a node comes to, from scratch, and the names of all that its value is made of."""
    values: list[tuple[Any, set[str]]] = []
    for child in of["children"]:
        deps = [values[place] for place in child["deps"]]
        values.append(evaluate(child, [value for value, _ in deps], set().union(*(by for _, by in deps)), versions))
    if of["gives"]:
        given_ = [values[place] for place in of["gives"]]
        return [value for value, _ in given_], {of["name"]}.union(*(by for _, by in given_))
    return f"{of['name']}{versions[of['name']]}({','.join(map(shown, inputs))})", {of["name"]} | made_of


def dependents(of: Node, name: str, made_of: Collection[str] = (), again: bool = False) -> set[str]:
    """The nodes that run again with this one, by what their inputs are made of."""
    again = again or of["name"] == name or name in made_of
    found = {of["name"]} if again else set[str]()
    values: list[set[str]] = []
    for child in of["children"]:
        deps = set[str]().union(*(values[place] for place in child["deps"]))
        found |= dependents(child, name, deps, again)
        values.append(evaluate(child, [], deps, Counter())[1])
    return found


@pytest.fixture
def program(emptied: Settings) -> Program:
    return Program(emptied)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(root=trees(), seed=st.integers(0, 2**32))
def test_exactly_what_depends_on_it_runs_again(program: Program, root: Node, seed: int) -> None:
    """And the result is that of a run from scratch."""
    world = program.world
    program.versions.clear()
    process_id = program.start(root)
    world.bring_to_end(process_id)
    task, name = random.Random(seed).choice(sorted(program.names(process_id).items()))
    program.versions[name] += 1
    program.ran.clear()
    kept = world.decisions(process_id)
    seen = redo(world.app.resources, process_id, "its data was wrong", [task])
    assert world.process(process_id).state is ProcessState.RUNNING
    process = world.bring_to_end(process_id)
    assert process.state is ProcessState.FINISHED
    value, _ = evaluate(root, [], set(), program.versions)
    assert world.app.result(process_id, timeout=0) == value
    assert program.ran == Counter(dependents(root, name)), "each once, and no other"
    assert seen.thrown_away == len(seen.again) + len(seen.dropped)
    after = world.decisions(process_id)
    for one in kept.keys() - seen.again.keys() - seen.dropped.keys():
        assert after[one].outcome == kept[one].outcome
    check_quiet(world, process_id)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(root=trees(), seed=st.integers(0, 2**32), taken=st.integers(0, 12))
def test_of_one_that_runs(program: Program, root: Node, seed: int, taken: int) -> None:
    world = program.world
    program.versions.clear()
    process_id = program.start(root)
    with by_message_only():
        for _ in range(taken):
            queue = next((name for name in ("tree", "node") if world.redis.llen(name)), None)
            if queue is not None:
                world.take_one(queue)
    task, name = random.Random(seed).choice(sorted(program.names(process_id).items()))
    program.versions[name] += 1
    program.ran.clear()
    redo(world.app.resources, process_id, "its data was wrong", [task])
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED
    assert world.app.result(process_id, timeout=0) == evaluate(root, [], set(), program.versions)[0]
    assert max(program.ran.values()) == 1
    assert program.ran.keys() >= dependents(root, name)
    check_quiet(world, process_id)
