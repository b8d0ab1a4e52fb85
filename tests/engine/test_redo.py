"""A process done again from one of its tasks: what depends on it runs again, and nothing else."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery import Promise
from recovery.engine import read_each
from recovery.engine.operators.redo import preview_redo, redo, redo_process
from recovery.engine.operators.restart import restart_process
from recovery.engine.steps import Ended
from recovery.errors import InputError, ProcessNotFound
from recovery.health import look
from recovery.records import ProcessState
from recovery.rules import Rule
from recovery.settings import Settings
from recovery.store.operators.restarts import KEPT_LIVES
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

        def run(of: Node, inputs: list[Any]) -> Any:
            return self.run(of, inputs)

        self.node = self.world.app.actor("node")(run)
        self.world.app.process("tree")(run)
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
        return self.world.start("tree", root, [])

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
        return [value for value, _ in given_], {of["name"]}.union(made_of, *(by for _, by in given_))
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
def world(emptied: Settings) -> World:
    return World(emptied)


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
    seen = redo_process(world.app.resources, process_id, "its data was wrong", [task])
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
    redo_process(world.app.resources, process_id, "its data was wrong", [task])
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED
    assert world.app.result(process_id, timeout=0) == evaluate(root, [], set(), program.versions)[0]
    assert max(program.ran.values()) == 1
    assert program.ran.keys() >= dependents(root, name)
    check_quiet(world, process_id)


def test_one_that_is_broken_runs_again_and_knows_what_it_was(world: World) -> None:
    fails = [True]

    @world.app.actor()
    def price(item: str) -> int:
        if fails[0]:
            raise ValueError(f"no price of {item}")
        return 7

    @world.app.actor()
    def look_up(item: str) -> str:
        return item

    @world.app.process()
    def order(item: str) -> Promise:
        return price.schedule(look_up.schedule(item))

    process_id = world.start("order", "tea")
    broken = world.bring_to_end(process_id)
    assert broken.state is ProcessState.BROKEN and world.store.interruptions.of_process(process_id)
    fails[0] = False
    (task,) = (key for key, one in world.decisions(process_id).items() if one.actor == "look_up")
    seen = preview_redo(world.app.resources, process_id, [task])
    assert (seen.kept, len(seen.again), seen.thrown_away, seen.failed) == (1, 2, 2, ())
    redo_process(world.app.resources, process_id, "the table was wrong", [task], by="me@here")
    assert world.store.interruptions.of_process(process_id) == []
    process = world.bring_to_end(process_id)
    assert (process.state, process.result, process.epoch, process.error) == (ProcessState.FINISHED, "7", 1, None)
    (life,) = process.lives
    assert (life.epoch, life.state, life.tasks) == (0, ProcessState.BROKEN, (task,))
    assert (life.by, life.reason) == ("me@here", "the table was wrong")
    assert life.error is not None and (life.error.message, life.error.stack) == ("no price of tea", None)
    (entry,) = world.store.audit_log.newest(5)
    assert (entry.what, entry.target, entry.outcome) == (
        "process restart",
        process_id,
        "2 tasks done again, 0 dropped, 1 kept",
    )


def test_what_fails_beside_it_breaks_the_process_once_more(world: World) -> None:
    @world.app.actor()
    def bad() -> None:
        raise ValueError("never")

    @world.app.actor()
    def good() -> int:
        return 1

    world.app.process("order")(lambda: [bad.schedule(), good.schedule()])
    process_id = world.start("order")
    world.bring_to_end(process_id)
    decisions = world.decisions(process_id)
    (task,) = (key for key, one in decisions.items() if one.actor == "good")
    seen = redo_process(world.app.resources, process_id, "again", [task])
    assert seen.failed == tuple(key for key, one in decisions.items() if one.actor == "bad")
    assert (there := world.store.graphs.get(process_id)) is not None and not there.failed, "nobody is told of it yet"
    assert world.bring_to_end(process_id).state is ProcessState.BROKEN
    assert [one.actor for one in world.store.interruptions.of_process(process_id)] == ["bad"]


def test_what_is_broken_is_listed_though_another_failure_beside_it_is_restarted(world: World) -> None:
    """A process of which two tasks failed is done again from a third one. Whoever restarts the first that fails then
    does not take off the list what the process is broken for."""
    bad = world.app.actor("bad")(lambda: 1 // 0)
    worse = world.app.actor("worse")(lambda: 1 // 0)
    world.app.process("order")(lambda: [bad.schedule(), worse.schedule()])
    process_id = world.start("order")
    world.bring_to_end(process_id)
    world.scan()
    tasks = {one.actor: key for key, one in world.decisions(process_id).items()}
    assert len(world.store.interruptions.of_process(process_id)) == 2
    redo_process(world.app.resources, process_id, "again", [tasks["bad"]])
    world.pump(serve={"bad": world.app.actors["bad"]})  # it fails again, and breaks the process
    assert world.process(process_id).state is ProcessState.BROKEN
    restart_process(world.app.resources, process_id, tasks["bad"], by="a test")
    listed = [one.actor for one in world.store.interruptions.of_process(process_id)]
    assert listed or world.process(process_id).state is ProcessState.RUNNING
    assert world.bring_to_end(process_id).state is ProcessState.BROKEN
    world.scan()
    assert {one.actor for one in world.store.interruptions.of_process(process_id)} >= {"worse"}


def test_who_works_on_what_is_kept_goes_on(world: World) -> None:
    """Its end is taken, though its epoch is over: it is not done twice."""
    ran = Counter[str]()

    @world.app.actor(idempotent=False)
    def charge() -> str:
        ran["charge"] += 1
        # Here, in the middle of it.
        redo_process(world.app.resources, process_id, "wrong", [task])
        return "paid"

    @world.app.actor()
    def price() -> int:
        ran["price"] += 1
        return 7

    world.app.process("order")(lambda: [price.schedule(), charge.schedule()])
    process_id = world.start("order")
    with by_message_only():
        world.take_one("order")
        world.take_one("price")
        (task,) = (key for key, one in world.decisions(process_id).items() if one.actor == "price")
        world.take_one("charge")
    assert world.bring_to_end(process_id).result == '[7,"paid"]'
    assert ran == {"charge": 1, "price": 2}
    check_quiet(world, process_id)


def test_a_zombie_of_what_is_done_again_is_not_taken(world: World) -> None:
    values = iter([1, 2])

    @world.app.actor()
    def price() -> int:
        value = next(values)
        if value == 1:
            redo_process(world.app.resources, process_id, "wrong", [task])
        return value

    world.app.process("order")(lambda: price.schedule())
    process_id = world.start("order")
    with by_message_only():
        world.take_one("order")
        (task,) = (key for key, one in world.decisions(process_id).items() if one.actor == "price")
        world.take_one("price")
    assert world.bring_to_end(process_id).result == "2"
    check_quiet(world, process_id)


def test_what_ends_between_the_look_and_the_word(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was to be dropped when it was looked at, and what is done again has scheduled a task since."""
    leaf = world.app.actor("leaf")(lambda: 1)
    world.app.process("order")(lambda: leaf.schedule())
    process_id, redos = world.start("order"), world.store.redos
    begin, links = redos.begin, redos.links
    assert world.app.registrar.wait(10)
    world.store.catch_up(10)

    def looked(process_ids: list[str]) -> Any:
        monkeypatch.setattr(redos, "links", links)
        found = links(process_ids)
        with by_message_only():
            world.take_one("order")
        return found

    def begun(*args: Any) -> bool:
        monkeypatch.setattr(redos, "links", looked)
        return begin(*args)

    monkeypatch.setattr(redos, "begin", begun)
    redo(world.app.resources, process_id, "wrong")
    assert {one.actor: one.epoch for one in world.decisions(process_id).values()} == {"order": 1}
    assert world.bring_to_end(process_id).result == "1"
    check_quiet(world, process_id)


def splitting(world: World, count: int) -> tuple[str, Counter[str], list[Ended]]:
    """A process that has finished, of so many tasks that schedule one each; what ran; and those tasks' ends, as who
    accepted them has them in hand."""
    ran = Counter[str]()

    @world.app.actor()
    def leaf(name: str) -> str:
        ran[name] += 1
        return name

    split = world.app.actor("split")(lambda name: leaf.schedule(name))
    world.app.process("order")(lambda: [split.schedule(f"leaf {place}") for place in range(count)])
    process_id = world.start("order")
    world.bring_to_end(process_id)
    decisions = world.decisions(process_id)
    late = read_each(world.store, [one.id for one in decisions.values() if one.actor == "split"], lambda *_: None)
    return process_id, ran, late


@pytest.mark.parametrize("step", ["put_back", "drop", "forget", "release", "move", "set_graph", "end"])
@pytest.mark.parametrize("together", [1, 2])
def test_what_is_applied_late_while_it_is_carried_out(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str, together: int
) -> None:
    """By who had accepted it in the life before, and was held up since."""
    process_id, ran, late = splitting(world, together)
    real = getattr(world.store.redos, step)

    def held_up(*args: Any) -> Any:
        monkeypatch.setattr(world.store.redos, step, real)
        world.app.outbox.apply(late)
        return real(*args)

    monkeypatch.setattr(world.store.redos, step, held_up)
    redo_process(world.app.resources, process_id, "wrong", ["start"])
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED
    assert set(ran.values()) == {2}
    assert {one.epoch for one in world.decisions(process_id).values()} == {1}
    assert len(world.decisions(process_id)) == 1 + 2 * together
    check_quiet(world, process_id)


@pytest.mark.parametrize("graph", [True, False], ids=["", "the graph is lost"])
@pytest.mark.parametrize("together", [1, 3])
def test_what_is_applied_late_leaves_nothing_of_the_life_before(world: World, together: int, graph: bool) -> None:
    """Several at once as well: what they had scheduled was dropped, is made again by who knows of no other life, and is
    to be gone then, or it would run once more."""
    process_id, ran, late = splitting(world, together)
    redo_process(world.app.resources, process_id, "wrong", ["start"])
    assert {one.actor for one in world.decisions(process_id).values()} == {"order"}
    if not graph:
        world.store.database["graphs"].delete_one({"_id": process_id})
    world.app.outbox.apply(late)
    left = {one.actor for one in world.decisions(process_id).values()}
    assert left <= {"order"}, "what is dropped is gone"
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED
    assert set(ran.values()) == {2}
    check_quiet(world, process_id)


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        (["nothing"], "has no task 'nothing', and none of an actor of that name; there are: order. `recovery show"),
        ([""], "task=''"),
        (["s", "t"], "has no task 't'"),
        ([{"$gt": ""}], "task="),
        (["\ud800"], "task="),
    ],
)
def test_a_task_that_is_not_there(world: World, tasks: list[Any], told: str) -> None:
    world.app.process("order")(lambda: 1)
    process_id = world.start("order")
    before = contents(world.store, "processes")
    with pytest.raises(InputError) as refused:
        redo_process(world.app.resources, process_id, "why", tasks)
    assert told in str(refused.value)
    assert contents(world.store, "processes") == before


def test_what_can_not_be_restarted(world: World) -> None:
    world.app.process("order")(lambda: 1)
    resources, process_id = world.app.resources, world.start("order")
    with pytest.raises(InputError, match="reason="):
        redo_process(resources, process_id, " ")
    with pytest.raises(ProcessNotFound):
        redo_process(resources, "0" * 32, "why")
    world.app.abort(process_id, "not wanted")
    with pytest.raises(InputError, match="was aborted, which is for good"):
        redo_process(resources, process_id, "why")


def test_while_it_is_carried_out_nothing_else_is_said_of_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from recovery.engine.operators import redo as module

    world.app.process("order")(lambda: 1)
    process_id = world.start("order")
    world.bring_to_end(process_id)
    monkeypatch.setattr(module, "carry_out", lambda *_: True)  # it is cut off
    redo_process(world.app.resources, process_id, "why")
    (finding,) = look(world.app.resources, process_id).findings
    assert finding.rule is Rule.REDO_CUT_OFF
    with pytest.raises(InputError, match="is just being restarted from start; ask again"):
        redo_process(world.app.resources, process_id, "why")
    assert world.bring_to_end(process_id).result == "1"
    assert [life.epoch for life in world.process(process_id).lives] == [0]
    check_quiet(world, process_id)


def test_a_process_timeout_counts_from_the_restart(world: World) -> None:
    world.app.process("order", process_timeout=3600.0, break_after_process_timeout=True)(lambda: 1)
    world.tell()
    process_id = world.start("order")
    world.bring_to_end(process_id)
    ago = world.store.now() - timedelta(hours=5)
    world.store.database["processes"].update_one({"_id": process_id}, {"$set": {"startedAt": ago}})
    redo_process(world.app.resources, process_id, "why")
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED


def test_the_last_lives_are_kept(world: World) -> None:
    world.app.process("order")(lambda: 1)
    process_id = world.start("order")
    for _ in range(KEPT_LIVES + 2):
        redo_process(world.app.resources, process_id, "again")
    assert [life.epoch for life in world.process(process_id).lives] == [*range(2, KEPT_LIVES + 2)]
    assert world.bring_to_end(process_id).result == "1"
