"""Apply: once, whatever is asked; of large graphs in batches; and sizes told before a record is too large."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recovery import Recovery
from recovery.engine import Applied, Ended, steps
from recovery.engine.actors.context import Attempt
from recovery.engine.apply import large_graphs
from recovery.engine.apply import outbox as outbox
from recovery.engine.apply.apply import Effect
from recovery.engine.apply.clearing import Clearing
from recovery.errors import TooLarge
from recovery.records import ActorPreferences, Decision, DecisionState, Encoded, Promise, Task, to_document
from recovery.records.values import encode
from recovery.store import Store
from tests.examples import examples
from tests.world import World, check_quiet


@pytest.fixture
def one_child(world: World) -> tuple[World, Ended]:
    """A process whose start task is finished and applied, and has one child, which is queued."""
    child = world.app.actor("child")(lambda: 1)
    process_id = world.start(world.app.process("order")(child.schedule))
    world.pump(serve={"order": world.app.actors["order"]})
    key = f"{process_id}/start"
    task, decision = world.store.tasks.get(key), world.store.decisions.get(key)
    assert task is not None
    assert decision is not None
    return world, Ended(task, decision)


def test_a_complete_graph_rests_once_its_process_is_over(one_child: tuple[World, Ended]) -> None:
    """As a majority has it. What a failover took back is the end of a process that is running again."""
    world, ended = one_child
    world.pump()
    processes, graphs = world.store.database["processes"], world.store.database["graphs"]
    over = processes.find_one()
    assert over is not None and over["state"] == "finished"
    for process, rests in (over | {"state": "running", "recoveryTime": over["startedAt"]}, False), (over, True):
        processes.replace_one({"_id": over["_id"]}, process)
        graphs.update_one({"_id": over["_id"]}, {"$set": {"recoveryTime": over["startedAt"]}})
        clearing = Clearing(world.app.resources)
        clearing.note(Effect([ended], Applied.NOW, complete=True))
        clearing.write()
        graph = world.store.graphs.get(over["_id"])
        assert graph is not None and (graph.recovery_time is None) == rests


def test_applied_again_changes_nothing(one_child: tuple[World, Ended]) -> None:
    world, ended = one_child
    names = ("processes", "tasks", "decisions", "graphs")
    before = {name: list(world.store.database[name].find()) for name in names}
    messages = world.redis.llen("child")
    assert list(world.app.outbox.apply([ended]).values()) == [Applied.BEFORE]
    assert {name: list(world.store.database[name].find()) for name in names} == before
    assert world.redis.llen("child") == messages


def test_a_child_before_its_parent_waits_for_it(one_child: tuple[World, Ended]) -> None:
    world, ended = one_child
    world.store.database["graphs"].update_one(
        {}, {"$set": {"notFinished": {"start": world.store.now()}, "finished": []}}
    )
    child = ended.decision.children[0]
    key = f"{ended.process_id}/{child.id}"
    world.pump()
    decision, task = world.store.decisions.get(key), world.store.tasks.get(key)
    assert decision is not None
    assert task is not None
    assert decision.state is DecisionState.FINISHED
    assert decision.recovery_time is not None, "somebody has to come back to it"
    assert list(world.app.outbox.apply([Ended(task, decision)]).values()) == [Applied.NOT_YET]
    assert list(world.app.outbox.apply([ended]).values()) == [Applied.NOW]
    assert list(world.app.outbox.apply([Ended(task, decision)]).values()) == [Applied.NOW]
    world.app.outbox.flush()
    check_quiet(world, ended.process_id)


def test_of_another_epoch(one_child: tuple[World, Ended]) -> None:
    world, ended = one_child
    graphs = world.store.database["graphs"]
    graphs.update_one({}, {"$set": {"epoch": 1}})
    before = list(graphs.find())
    assert list(world.app.outbox.apply([ended]).values()) == [Applied.STALE]
    world.store.catch_up(10)
    (kept,) = world.store.rejected_writes.latest()
    assert (kept.step, kept.guard, kept.record) == ("apply", "epoch", ended.decision.id)
    assert list(graphs.find()) == before


def test_of_a_graph_that_is_gone(one_child: tuple[World, Ended]) -> None:
    """It is made from the decisions, this one among them."""
    world, ended = one_child
    world.store.database["graphs"].delete_one({})
    assert list(world.app.outbox.apply([ended]).values()) == [Applied.RESTORED]
    graph = world.store.graphs.get(ended.process_id)
    assert graph is not None
    assert graph.finished == ("start",)


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_failure_of_a_graph_that_is_gone(world: World, restarts: int) -> None:
    """Also of a task that was restarted: the graph that is made knows that."""

    @world.app.process()
    def order() -> None:
        raise ValueError("no")

    process_id = world.start(order)
    for _ in range(restarts):
        world.pump()
        world.app.restart(process_id)
    world.store.database["graphs"].delete_one({})
    world.pump()
    process = world.bring_to_end(process_id)
    assert process.error is not None
    assert process.error.kind == "ValueError"
    assert world.app.restart(process_id) == 1


def test_a_large_graph_is_applied_in_batches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their number alone: how long it takes until there are so many is the machine's."""
    monkeypatch.setattr(large_graphs, "LARGE_GRAPH", 500)
    monkeypatch.setattr(outbox, "GATHER_DELAY", 600.0)
    leaf = world.app.actor("leaf")(lambda number: number)
    deep = world.app.actor("deep")(leaf.schedule)
    total = world.app.actor("total")(sum)

    @world.app.process()
    def wide(count: int) -> Any:
        parts = [(deep if number % 50 == 0 else leaf).schedule(number) for number in range(count)]
        return [total.schedule(parts), total.schedule(parts[: count // 2])]

    process_id = world.start(wide, 200)
    world.bring_to_end(process_id)
    assert world.app.result(process_id, timeout=0) == [sum(range(200)), sum(range(100))]
    check_quiet(world, process_id)
    graph = world.store.graphs.get(process_id)
    assert graph is not None
    assert len(graph.finished) == 1 + 200 + 4 + 2
    assert graph.version < 20, "an update of the graph for each of 207 tasks is what this is to spare"


def test_an_error_in_a_large_graph(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_graphs, "LARGE_GRAPH", 500)

    @world.app.actor()
    def leaf(number: int) -> int:
        return 60 // (number - 30)

    @world.app.process()
    def wide() -> Any:
        return [leaf.schedule(number) for number in range(60)]

    process = world.bring_to_end(world.start(wide))
    assert process.error is not None
    assert process.error.kind == "ZeroDivisionError"
    graph = world.store.graphs.get(process.id)
    assert graph is not None
    assert len(graph.not_finished) == 1
    assert len(graph.failed) == 1


def attempt(app: Recovery, actor: str = "order") -> Attempt:
    decision = Decision(id="p/start", actor=actor, pass_key="k")
    return Attempt(Store(app.settings), decision, ActorPreferences(id=actor))


NAMES = st.sampled_from(["a", "x" * 100])
LONG_CHAIN = [("x" * 100, {n - 1} & set(range(300)), "") for n in range(300)]


@given(plan=st.lists(st.tuples(NAMES, st.sets(st.integers(0, 29)), st.text('aé"', max_size=30)), max_size=30))
@example(plan=LONG_CHAIN)
@examples(40)
def test_what_is_counted_is_never_less_than_what_the_record_takes(plan: list[tuple[str, set[int], str]]) -> None:
    """Children with any links: else the one write that must not fail is refused by MongoDB."""
    made = Attempt(None, Decision(id="p/start", actor="order", pass_key="k"), ActorPreferences(id="order"))  # type: ignore[arg-type]
    promises: list[Promise] = []
    for name, waits, text in plan:
        args = [[promises[n] for n in sorted(waits) if n < len(promises)], text]
        promises.append(made.add_child(name, encode([args, {}], name), datetime.now(UTC), 1.5))
    encoded = encode(promises, "value")
    made.add_value(encoded, "value")
    outcome = {"value": encoded.text, "waits": list(encoded.promises)}
    document = {"children": [to_document(child) for child in made.children()], "outcome": outcome}
    assert len(bson.encode(document)) <= made.size + 100


def test_links_count_too(app: Recovery) -> None:
    """A thousand children that wait for a thousand others: their arguments are small, their links are not."""
    made = attempt(app)
    first = [made.add_child("part", Encoded("[[],{}]", ())).task_id for _ in range(1000)]
    with pytest.raises(TooLarge, match="scheduling sum: the result and child tasks of order come to over 16 MB"):
        for _ in range(1000):
            made.add_child("sum", Encoded("[[],{}]", tuple(first)))


def test_a_task_is_what_its_decision_says(one_child: tuple[World, Ended]) -> None:
    world, ended = one_child
    tasks, decisions = steps.records_of_children(ended.task, ended.decision)
    (task,), (decision,) = tasks, decisions
    assert isinstance(task, Task)
    assert world.store.tasks.get(task.id) == task == decision.task()
    assert (task.parent, task.dependents) == ("start", {})


def test_what_is_applied_after_its_successor_brings_the_next_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outbox's own thread is just about to apply the first when the second, which was claimed on the spot, has
    ended and there is nothing more to take: what waits for both comes as a message then."""
    app, real, pop = world.app, outbox.apply, world.pop
    begins, goes_on = threading.Event(), threading.Event()

    def late(*args: Any) -> Any:
        if threading.current_thread().name == "outbox" and not begins.is_set():
            begins.set()
            assert goes_on.wait(10)
        return real(*args)

    def nothing_more(queues: Iterable[str]) -> Any:
        message = pop(queues)
        if message is None and begins.is_set():
            goes_on.set()
        return message

    monkeypatch.setattr(outbox, "GATHER_DELAY", 0.0)
    monkeypatch.setattr(outbox, "apply", late)
    monkeypatch.setattr(world, "pop", nothing_more)
    first = app.actor("first")(lambda: 1)
    second = app.actor("second")(lambda one: one + begins.wait(10))
    both = app.actor("both")(lambda *numbers: sum(numbers))

    def order() -> Any:
        one = first.schedule()
        return both.schedule(one, second.schedule(one))

    process_id = world.start(app.process()(order))
    world.pump()
    assert goes_on.is_set()
    assert app.result(process_id, timeout=0) == 3
