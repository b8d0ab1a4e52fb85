"""Decisions of several processes that are applied together: each comes to what it would come to by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from recovery import metrics
from recovery.engine import Ended, Slot, read_each
from recovery.engine.operators.redo import redo_process
from recovery.errors import StoreUnavailable
from recovery.records import ProcessState
from recovery.store.lifecycle.graphs import Graphs
from recovery.store.lifecycle.processes import Processes
from recovery.store.lifecycle.requeues import Requeues
from recovery.store.lifecycle.tasks import Tasks
from tests.counting import failed_steps
from tests.store import single
from tests.world import World, arguments, check_quiet

ORDERS, ITEMS = 5, 3


class Orders:
    """Processes of an application whose deciders schedule some items each, and tasks that have ended and are not yet
    applied."""

    def __init__(self, world: World) -> None:
        self.world = world
        item = world.app.actor("item")(lambda order, number: [order, number])
        pack = world.app.actor("pack")(lambda items: items)
        world.app.process("order")(lambda order: pack.schedule([item.schedule(order, n) for n in range(ITEMS)]))
        self.ids = [world.start("order", f"order {number}") for number in range(ORDERS)]

    def end(self, actor: str) -> list[Ended]:
        """All that are queued of an actor run, and none of them is applied."""
        self.world.tell()
        slot, ids = Slot(self.world.app.resources, Idle(), self.world.app.actors, "w#1"), list[str]()
        while (message := self.world.pop([actor])) is not None:
            ids.append(arguments(message)[0])
            slot.run(self.world.app.actors[actor], *arguments(message))
        return read_each(self.world.store, ids, lambda *_: None)

    def run_out(self) -> None:
        """Bring all to their ends, which are right."""
        for number, process_id in enumerate(self.ids):
            assert self.world.bring_to_end(process_id).state is ProcessState.FINISHED
            assert self.world.app.result(process_id, timeout=0) == [[f"order {number}", n] for n in range(ITEMS)]
            check_quiet(self.world, process_id)


class Idle:
    """Applies nothing."""

    def put(self, *_: Any) -> None: ...


def apply_all(world: World, ended: Sequence[Ended]) -> None:
    """Apply these at once, and claim nothing of what becomes ready."""
    world.app.outbox.put(ended, lambda _ready: ())


@pytest.fixture
def orders(world: World) -> Orders:
    return Orders(world)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """{step of the store: how often it was taken}."""
    counts: dict[str, int] = {}
    # A whole graph is read only where one seems to lack tasks.
    steps = ((Tasks, "insert"), (Graphs, "apply"), (Graphs, "get"), (Requeues, "enqueue_ready"), (Processes, "finish"))
    for of, name in steps:
        real, key = getattr(of, name), f"{of.__name__}.{name}"

        def counted(*args: Any, _real: Any = real, _key: str = key, **kw: Any) -> Any:
            counts[_key] = counts.get(_key, 0) + 1
            return _real(*args, **kw)

        monkeypatch.setattr(of, name, counted)
    return counts


def test_each_step_is_taken_once_for_all(world: World, orders: Orders, calls: dict[str, int]) -> None:
    for actor, steps in (
        ("order", {"Tasks.insert": 1, "Graphs.apply": 1, "Requeues.enqueue_ready": 1}),
        ("item", {"Graphs.apply": 1, "Requeues.enqueue_ready": 1}),
        ("pack", {"Graphs.apply": 1, "Processes.finish": 1}),
    ):
        ended = orders.end(actor)
        calls.clear()
        apply_all(world, ended)
        assert calls == steps, actor
    assert {world.process(one).state for one in orders.ids} == {ProcessState.FINISHED}
    orders.run_out()


@pytest.mark.parametrize("actor", ["order", "item", "pack"])
def test_applied_again_it_changes_nothing(world: World, orders: Orders, actor: str) -> None:
    for name in ("order", "item", "pack"):
        ended = orders.end(name)
        apply_all(world, ended)
        if name == actor:
            break
    world.app.outbox.flush()  # deadlines, which are cleared for many at once
    kinds = ("processes", "tasks", "decisions", "graphs")
    before = {kind: list(world.store.database[kind].find()) for kind in kinds}
    apply_all(world, ended)
    world.app.outbox.flush()
    assert {kind: list(world.store.database[kind].find()) for kind in kinds} == before
    orders.run_out()


@pytest.mark.parametrize(
    ("actor", "step"),
    [
        *((actor, "Graphs.apply") for actor in ("order", "item", "pack")),
        *(("order", "Requeues.enqueue_ready"), ("item", "Requeues.enqueue_ready"), ("pack", "Processes.finish")),
    ],
)
def test_one_that_is_done_again_meanwhile(
    world: World, orders: Orders, monkeypatch: pytest.MonkeyPatch, actor: str, step: str
) -> None:
    """Right after the step: what is ready in its graph is of another epoch then, or what it scheduled is of a life
    before."""
    for name in ("order", "item", "pack"):
        ended = orders.end(name)
        if name == actor:
            break
        apply_all(world, ended)
    of = {"Graphs": Graphs, "Requeues": Requeues, "Processes": Processes}[step.partition(".")[0]]
    real = getattr(of, step.partition(".")[2])

    def then_again(*args: Any, **kw: Any) -> Any:
        monkeypatch.setattr(of, step.partition(".")[2], real)
        found = real(*args, **kw)
        redo_process(world.app.resources, orders.ids[2], "its data was wrong", ["start"])
        return found

    monkeypatch.setattr(of, step.partition(".")[2], then_again)
    apply_all(world, ended)
    assert getattr(of, step.partition(".")[2]) is real, "it did not come to that"
    orders.run_out()


def test_one_that_is_done_again_between_its_update_and_the_look_at_it(
    world: World, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it scheduled is taken back, and runs in the new epoch only."""
    ended, real = orders.end("order"), Graphs.apply

    def first_again(*args: Any) -> Any:
        monkeypatch.setattr(Graphs, "apply", real)
        found = real(*args)
        redo_process(world.app.resources, orders.ids[2], "its data was wrong", ["start"])
        return found

    monkeypatch.setattr(Graphs, "apply", first_again)
    apply_all(world, ended)
    epochs = {key: one.epoch for key, one in world.decisions(orders.ids[2]).items()}
    assert epochs == {"start": 1}
    orders.run_out()


def test_a_spoilt_graph_is_told_and_holds_up_no_other(world: World, orders: Orders) -> None:
    ended = orders.end("order")
    whole = world.store.database["graphs"].find_one({"_id": orders.ids[1]})
    assert whole is not None
    spoilt = {"q": {"_id": orders.ids[1]}, "u": {"$set": {"finished": 3}}}
    world.store.database.command("update", "graphs", updates=[spoilt], bypassDocumentValidation=True)
    before = failed_steps()
    apply_all(world, ended)
    assert failed_steps() == before + 1
    queued = {one["_id"].partition("/")[0] for one in world.store.database["decisions"].find({"state": "queued"})}
    assert queued == set(orders.ids) - {orders.ids[1]}
    world.store.database["graphs"].replace_one({"_id": orders.ids[1]}, whole)
    orders.run_out()


def test_a_graph_that_lacks_a_task_ends_no_process(world: World, orders: Orders) -> None:
    """Its end would hide the task; the graph is made whole first."""
    for actor in ("order", "item"):
        apply_all(world, orders.end(actor))
    ended = orders.end("pack")
    one = next(key for key, decision in world.decisions(orders.ids[3]).items() if decision.actor == "item")
    world.store.database["graphs"].update_one({"_id": orders.ids[3]}, {"$pull": {"finished": one}})
    real, finished = Processes.finish, dict[str, int]()

    def looked(self: Any, results: Any, *life: Any) -> Any:
        finished.update((key, world.store.graphs.finished(key)) for key in results)
        return real(self, results, *life)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Processes, "finish", looked)
        apply_all(world, ended)
    assert finished == dict.fromkeys(orders.ids, ITEMS + 2)
    orders.run_out()


def test_what_another_has_ended_meanwhile_is_over_and_not_applied_again(
    world: World, orders: Orders, calls: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers have the last tasks of the same processes. Those that they end are counted, each once."""
    for actor in ("order", "item"):
        apply_all(world, orders.end(actor))
    ended, real = orders.end("pack"), Processes.ending
    before = finished_orders()

    def overtaken(self: Any, ids: Any) -> Any:
        found = real(self, ids)
        for process_id in orders.ids[:3]:
            assert single.finish_process(world.store, process_id, 0, '["by another"]')
        return found

    monkeypatch.setattr(Processes, "ending", overtaken)
    calls.clear()
    apply_all(world, ended)
    assert calls["Graphs.apply"] == 1
    assert finished_orders() == before + 2
    monkeypatch.setattr(Processes, "ending", real)
    calls.clear()
    apply_all(world, ended)
    assert calls == {"Graphs.apply": 1}, "they are over"


def finished_orders() -> float:
    return float(metrics.PROCESSES_ENDED.labels("order", "finished")._value.get())


def test_a_graph_of_no_epoch_is_its_own_damage(world: World, orders: Orders, calls: dict[str, int]) -> None:
    ended = orders.end("order")
    real = Graphs.apply

    def spoilt(self: Any, groups: Any) -> Any:
        change = {"q": {"_id": orders.ids[1]}, "u": {"$set": {"epoch": "none"}}}
        world.store.database.command("update", "graphs", updates=[change], bypassDocumentValidation=True)
        return real(self, groups)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Graphs, "apply", spoilt)
        calls.clear()
        apply_all(world, ended)
    assert calls["Graphs.apply"] == 2, "all, and this one by itself: the others are done"
    whole = {"q": {"_id": orders.ids[1]}, "u": {"$set": {"epoch": 0}}}
    world.store.database.command("update", "graphs", updates=[whole])
    orders.run_out()


def test_a_server_that_goes_away_in_between_is_told(world: World, orders: Orders) -> None:
    ended = orders.end("order")

    def away(*_: Any) -> Any:
        raise StoreUnavailable("away")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Requeues, "enqueue_ready", away)
        with pytest.raises(StoreUnavailable):
            apply_all(world, ended)
    orders.run_out()
