"""Restart of what failed for good: the process goes on from there, and nothing that was done is done again."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from recovery import InputError, ProcessBroken, ProcessNotFound
from recovery.engine import Result, Slot, rebuild_graphs
from recovery.engine.apply.complete import too_large
from recovery.engine.apply.interruption import interrupt
from recovery.engine.apply.reopen import reopen
from recovery.engine.end.breaking import break_process
from recovery.engine.operators.restart import Restarts, restart_process, restart_selected
from recovery.engine.steps import Applied, Ended
from recovery.records import Decision, DecisionState, ErrorInfo, Outcome, ProcessState
from recovery.records.ids import record_id
from recovery.store import Restarted, Selection
from tests.counting import operations
from tests.store import single
from tests.waiting import wait_until
from tests.world import World, arguments, check_quiet


class Shop:
    """`order` packs, pays for each part, and ships; payments of what is in `refused` fail."""

    def __init__(self, world: World) -> None:
        self.world, self.refused = world, set[int]()
        self.ran: Counter[str] = Counter()

        @world.app.actor()
        def pack(part: int) -> int:
            self.ran[f"pack {part}"] += 1
            return part

        @world.app.actor()
        def pay(part: int) -> int:
            self.ran[f"pay {part}"] += 1
            if part in self.refused:
                raise ValueError(f"no money for {part}")
            return 10 * part

        @world.app.actor()
        def ship(*done: Any) -> Any:
            self.ran["ship"] += 1
            return list(done)

        @world.app.process()
        def order(*parts: int) -> Any:
            return ship.schedule([pack.schedule(pay.schedule(part)) for part in parts], pack.schedule(0))

        self.order = order

    def broken(self, *parts: int) -> str:
        """A broken process."""
        process_id = self.world.start(self.order, *parts)
        self.world.pump()
        assert self.world.process(process_id).state is ProcessState.BROKEN
        return process_id

    def paying(self, process_id: str) -> list[Decision]:
        """The decisions of its payments, in the order of their parts."""
        found = [d for d in self.world.decisions(process_id).values() if d.actor == "pay"]
        whole = [one for d in found if (one := self.world.store.decisions.get(d.id))]
        return sorted(whole, key=lambda d: d.call.args if d.call else "")


@pytest.fixture
def shop(world: World) -> Shop:
    return Shop(world)


def test_only_what_depends_on_it_waits_and_nothing_is_done_twice(shop: Shop, world: World) -> None:
    shop.refused = {2}
    process_id = shop.broken(1, 2, 3)
    done = Counter({"pay 1": 1, "pay 2": 1, "pay 3": 1, "pack 10": 1, "pack 30": 1, "pack 0": 1})
    assert shop.ran == done
    shop.refused = set()
    assert world.app.restart(process_id) == 1
    process = world.process(process_id)
    assert (process.state, process.error, process.ended_at) == (ProcessState.RUNNING, None, None)
    assert process.recovery_time is not None
    world.bring_to_end(process_id)
    assert world.app.result(process_id) == [[10, 20, 30], 0]
    assert shop.ran == done + Counter({"pay 2": 1, "pack 20": 1, "ship": 1})
    check_quiet(world, process_id)
    assert world.store.interruptions.of_process(process_id) == []


def test_the_record_of_an_interruption(shop: Shop, world: World) -> None:
    shop.refused = {2}
    process_id = shop.broken(1, 2)
    (found,) = world.store.interruptions.of_process(process_id)
    (failed,) = [d for d in shop.paying(process_id) if d.failed]
    assert (found.id, found.type, found.actor, found.kind, found.message, found.attempt, found.restarts) == (
        failed.id, "order", "pay", "ValueError", "no money for 2", 1, 0,
    )  # fmt: skip
    assert failed.outcome is not None
    assert failed.outcome.error is not None
    assert found.fingerprint == failed.outcome.error.fingerprint
    assert found.at is not None
    assert list(world.app.outbox.apply([ended(world, failed)]).values()) == [Applied.BEFORE]
    assert world.store.interruptions.of_process(process_id) == [found]


def test_it_may_fail_again_and_be_restarted_again(shop: Shop, world: World) -> None:
    shop.refused = {2}
    process_id = shop.broken(2)
    for restarts in (1, 2, 3):
        world.app.restart(process_id)
        world.pump()
        assert world.process(process_id).state is ProcessState.BROKEN
        (found,) = world.store.interruptions.of_process(process_id)
        assert (found.restarts, found.attempt) == (restarts, restarts + 1)
    shop.refused = set()
    world.app.restart(process_id)
    world.bring_to_end(process_id)
    assert world.app.result(process_id) == [[20], 0]
    check_quiet(world, process_id)


def test_of_several_failed_tasks_all_must_be_restarted(shop: Shop, world: World) -> None:
    shop.refused = {2, 3}
    process_id = shop.broken(1, 2, 3)
    assert len(world.store.interruptions.of_process(process_id)) == 2
    shop.refused = set()
    first, second = (d.task_id for d in shop.paying(process_id) if d.failed)
    assert world.app.restart(process_id, first) == 1
    world.pump()
    assert world.process(process_id).state is ProcessState.BROKEN, "the other is still failed"
    assert [one.id for one in world.store.interruptions.of_process(process_id)] == [f"{process_id}/{second}"]
    assert world.app.restart(process_id, second) == 1
    world.bring_to_end(process_id)
    assert world.app.result(process_id) == [[10, 20, 30], 0]
    check_quiet(world, process_id)


def test_a_restart_of_all_goes_on_with_one_that_was_cut_off(
    shop: Shop, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And restarts the others as well."""
    shop.refused = {1, 2}
    process_id = shop.broken(1, 2)
    graph = world.store.graphs.get(process_id)
    assert graph is not None
    with monkeypatch.context() as cut, pytest.raises(ConnectionError):
        cut.setattr(world.store.restarts, "reopen_graphs", _cut_off)
        world.app.restart(process_id, min(graph.failed))
    shop.refused = set()
    assert restart_process(world.app.resources, process_id) == Restarts(tasks=1, processes=1)
    assert world.store.interruptions.of_process(process_id) == []
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED


def _cut_off(*_: Any) -> int:
    raise ConnectionError


def test_while_it_runs_again_it_is_waited_for(shop: Shop, world: World) -> None:
    shop.refused = {2}
    process_id = shop.broken(2)
    with pytest.raises(ProcessBroken) as told:
        world.app.result(process_id)
    assert told.value.state == "broken"


def test_what_cant_be_restarted(shop: Shop, world: World) -> None:
    app = world.app
    with pytest.raises(ProcessNotFound):
        app.restart("f" * 32)
    running = world.start(shop.order, 1)
    with pytest.raises(InputError, match="is running; only tasks of a broken process can be restarted"):
        app.restart(running)
    shop.refused = {2}
    process_id = shop.broken(2)
    with pytest.raises(InputError, match="has no task 'nine'"):
        app.restart(process_id, "nine")
    with pytest.raises(InputError, match="/start is finished and has not failed"):
        app.restart(process_id, "start")
    assert world.process(process_id).state is ProcessState.BROKEN


def test_a_process_that_broke_as_a_whole_is_listed_and_breaks_again(world: World) -> None:
    size = 9_000_000
    process_id = world.start(world.app.process("order")(lambda: "x" * size), custom_id="x")
    world.store.database["processes"].update_one({}, {"$set": {"args": "[[],{}]" + " " * size}})
    world.pump()
    for _ in range(2):
        (found,) = world.store.interruptions.of_process(process_id)
        assert (found.id, found.kind, found.actor) == (f"{process_id}/start", "TooLarge", "order")
        world.app.restart(process_id)
        assert world.process(process_id).state is ProcessState.BROKEN


def test_a_process_whose_graph_outgrew_its_record_cant_be_restarted(world: World) -> None:
    """What was to be applied is given up: its graph does not know of it."""
    process_id = world.start(world.app.process("order")(lambda: 1))
    assert world.store.graphs.fail(process_id, 0, "start")
    assert break_process(world.app.resources, process_id, 0, too_large("graph"))
    with pytest.raises(InputError, match=re.escape("its records are lost (TooLarge: the graph of the process is")):
        world.app.restart(process_id)
    assert restart_selected(world.app.resources, Selection()) == Restarts()
    assert world.process(process_id).state is ProcessState.BROKEN


def test_a_group_is_restarted(shop: Shop, world: World) -> None:
    shop.refused = {2, 3}
    processes = [shop.broken(2), shop.broken(3), shop.broken(1, 2, 3)]
    world.app.process("other")(lambda: [][0])
    other = world.start("other")
    world.pump()
    groups = {(g.actor, g.kind): g for g in world.store.interruptions.groups(Selection())}
    assert {key: group.count for key, group in groups.items()} == {("pay", "ValueError"): 4, ("other", "IndexError"): 1}
    assert groups["pay", "ValueError"].first <= groups["pay", "ValueError"].last
    shop.refused = set()
    counted = operations("restart")
    done = restart_selected(world.app.resources, Selection(actor="pay"), limit=1)
    assert (done.tasks, done.processes) == (1, 1)
    assert operations("restart") == counted + 1
    done = restart_selected(world.app.resources, Selection(fingerprint=groups["pay", "ValueError"].fingerprint))
    assert (done.tasks, done.processes) == (3, 2)
    for process_id in processes:
        assert world.bring_to_end(process_id).state is ProcessState.FINISHED
        check_quiet(world, process_id)
    assert [one.process_id for one in world.store.interruptions.page(Selection(), "", 10)] == [other]


# Results and applies from before a restart.


def ended(world: World, decision: Decision) -> Ended:
    task = world.store.tasks.get(decision.id)
    assert task is not None
    return Ended(task, decision)


def finish(world: World, decision: Decision, value: str) -> bool:
    outcome = Outcome(pass_key=str(decision.pass_key), value=value)
    return single.finish(world.store, decision, outcome, (), accept_first=True, worker="zombie#1", apply_timeout=5
    )  # fmt: skip


def test_a_result_from_before_is_not_accepted(shop: Shop, world: World) -> None:
    """Not even where any attempt's value is: the attempt was given up before the task failed."""
    shop.refused = {2}
    process_id = shop.broken(2)
    (claimed,) = shop.paying(process_id)
    world.app.restart(process_id)
    assert not finish(world, claimed, "666")
    (now,) = shop.paying(process_id)
    assert now.state is DecisionState.QUEUED
    assert finish(world, now, "20"), "one of this life is"


def test_a_failure_from_before_is_not_applied(shop: Shop, world: World) -> None:
    """By whoever had read it: before the graph is asked, and after."""
    shop.refused = {2}
    process_id = shop.broken(2)
    (failed,) = shop.paying(process_id)
    shop.refused = set()
    world.app.restart(process_id)
    assert list(world.app.outbox.apply([ended(world, failed)]).values()) == [Applied.STALE]
    assert world.process(process_id).state is ProcessState.RUNNING
    world.bring_to_end(process_id)
    assert world.app.result(process_id) == [[20], 0]
    assert world.store.interruptions.of_process(process_id) == []


def test_restarted_between_the_graph_and_the_process(shop: Shop, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An apply that has noted the failure must not break the process that was restarted meanwhile."""
    shop.refused = {2, 3}
    process_id = shop.broken(2, 3)
    first, second = shop.paying(process_id)
    shop.refused = set()
    world.app.restart(process_id, first.task_id)
    store, real = world.app.resources.store, world.app.resources.store.graphs.fail

    def fail_then_restart(*args: Any) -> bool:
        noted = real(*args)
        monkeypatch.undo()
        world.app.restart(process_id)
        return noted

    monkeypatch.setattr(store.graphs, "fail", fail_then_restart)
    assert interrupt(world.app.resources, second) is Applied.BEFORE
    assert world.process(process_id).state is ProcessState.RUNNING
    world.bring_to_end(process_id)
    assert world.app.result(process_id) == [[20, 30], 0]
    assert world.store.interruptions.of_process(process_id) == []


def test_a_failure_between_the_look_and_the_reopening_breaks_it_again(
    shop: Shop, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own apply finds the process broken, and leaves it at that."""
    shop.refused = {2, 3}
    process_id = world.start(shop.order, 2, 3)
    world.pump(serve={name: world.app.actors[name] for name in ("order", "pack")})
    message = world.pop(["pay"])
    assert message is not None
    world.redis.lpush("aside", *[world.redis.rpop("pay")])
    _run(world, message)
    assert world.process(process_id).state is ProcessState.BROKEN
    store, real = world.app.resources.store, world.app.resources.store.restarts.reopen_processes

    def fail_then_reopen(seen: Any) -> int:
        other = world.pop(["aside"])
        assert other is not None
        _run(world, other)
        return real(seen)

    monkeypatch.setattr(store.restarts, "reopen_processes", fail_then_reopen)
    world.app.restart(process_id)
    process = world.process(process_id)
    assert process.state is ProcessState.BROKEN
    assert process.reopened == 1
    monkeypatch.undo()
    shop.refused = set()
    world.app.restart(process_id)
    world.bring_to_end(process_id)
    assert world.app.result(process_id) == [[20, 30], 0]


def test_a_failure_while_a_process_that_broke_as_a_whole_is_set_running(
    shop: Shop, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above: its own apply finds the process broken, for its time-out still."""
    shop.refused = {2}
    process_id = world.start(shop.order, 2)
    world.pump(serve={name: world.app.actors[name] for name in ("order", "pack")})
    assert break_process(world.app.resources, process_id, 0, ErrorInfo(kind="ProcessTimeout", message="too late"))
    restarts, real = world.store.restarts, world.store.restarts.reopen_processes

    def fail_then_reopen(seen: Any) -> int:
        assert world.pump() == 1
        return real(seen)

    monkeypatch.setattr(restarts, "reopen_processes", fail_then_reopen)
    world.app.restart(process_id)
    process = world.process(process_id)
    assert (process.state, process.reopened) == (ProcessState.BROKEN, 1)
    assert process.error is not None and process.error.kind == "ValueError"
    monkeypatch.undo()
    shop.refused = set()
    world.app.restart(process_id)
    world.bring_to_end(process_id)
    assert world.app.result(process_id) == [[20], 0]
    check_quiet(world, process_id)


@pytest.mark.parametrize("ran", [False, True], ids=["before its task ran", "after its task ran"])
def test_one_damaged_process_does_not_cut_off_the_rest_of_a_batch(
    shop: Shop, world: World, caplog: pytest.LogCaptureFixture, ran: bool
) -> None:
    """Its graph is gone and can't be made again, which is found after the commit point."""
    shop.refused = {2}
    damaged, well, other = (shop.broken(2) for _ in range(3))
    graphs, start = world.store.database["graphs"], {"_id": record_id(damaged, "start")}
    graphs.delete_many({"_id": {"$in": [damaged, well]}})
    children = world.store.database["decisions"].find_one(start, {"children": True})
    assert children is not None
    _past_the_validator(world, start, {"children": "nonsense"})
    shop.refused = set()
    assert restart_selected(world.app.resources, Selection()) == Restarts(tasks=3, processes=2)
    assert damaged in caplog.text
    assert world.redis.llen("pay") == 3, "all were pushed"
    listed = [one.id for key in (damaged, well, other) for one in world.store.interruptions.of_process(key)]
    assert [key.partition("/")[0] for key in listed] == [damaged], "what was not reopened is not forgotten"
    message = world.pop(["pay"])
    assert message is not None and arguments(message)[0].startswith(damaged)
    if ran:
        _run(world, message)
    assert world.process(damaged).state is ProcessState.BROKEN
    _past_the_validator(world, start, {"children": children["children"]})
    if ran:
        wait_until(lambda: world.scan() or world.process(damaged).state is ProcessState.RUNNING, 10, "its reopening")
    else:
        assert restart_selected(world.app.resources, Selection()) == Restarts(processes=1)
    for process_id in (damaged, well, other):
        world.bring_to_end(process_id)
        assert world.app.result(process_id) == [[20], 0]
        assert world.store.interruptions.of_process(process_id) == []
        check_quiet(world, process_id)


def _past_the_validator(world: World, of_it: dict[str, str], fields: dict[str, Any]) -> None:
    updates = [{"q": of_it, "u": {"$set": fields}}]
    assert world.store.database.command("update", "decisions", updates=updates, bypassDocumentValidation=True)["n"]


def _run(world: World, message: dict[str, Any]) -> None:
    name = message["headers"]["task"]
    slot = Slot(world.app.resources, world.app.outbox, {name: world.app.actors[name]}, "survivor#1")
    slot.run(world.app.actors[name], *arguments(message))
    world.app.outbox.flush()


def test_a_restart_that_is_late_does_not_undo_what_came_since(shop: Shop, world: World) -> None:
    """Cut off after its commit point; the task ran, failed again, and is listed. Then the restart goes on."""
    shop.refused = {2}
    process_id = shop.broken(2)
    (failed,) = shop.paying(process_id)
    seen = {process_id: world.process(process_id)}
    restarted = Restarted(failed.id, 0, 0)
    queued = world.store.restarts.queue([restarted], "c" * 32)
    assert [one.id for one in queued] == [failed.id]
    world.app.resources.broker.push(queued)
    world.pump()
    (again,) = world.store.interruptions.of_process(process_id)
    assert again.restarts == 1
    assert reopen(world.app.resources, [restarted.again()], seen) == 0
    assert world.process(process_id).state is ProcessState.BROKEN
    assert world.store.interruptions.of_process(process_id) == [again]
    assert world.store.restarts.queue([restarted], "q" * 32) == [], "a failure is restarted once"


def test_the_word_that_a_failure_is_applied_does_not_put_its_next_life_to_rest(shop: Shop, world: World) -> None:
    shop.refused = {2}
    process_id = shop.broken(2)
    (failed,) = shop.paying(process_id)
    world.app.restart(process_id)
    (queued,) = shop.paying(process_id)
    assert finish(world, queued, "20")
    assert world.store.decisions.clear_deadlines([failed.id], failed.epoch, failed.restarts) == 0
    world.bring_to_end(process_id)
    assert world.app.result(process_id) == [[20], 0]
    check_quiet(world, process_id)


def test_a_process_whose_time_was_over_runs_again(shop: Shop, world: World) -> None:
    """By its id, or with its group; and if all its tasks are done by then it finishes at once."""
    error = ErrorInfo(kind="ProcessTimeout", message="too late")
    first, second = world.start(shop.order, 1), world.start(shop.order, 2)
    for process_id in (first, second):
        assert break_process(world.app.resources, process_id, 0, error)
    world.app.restart(first)
    world.pump()
    assert world.process(first).state is ProcessState.FINISHED
    assert world.process(second).state is ProcessState.BROKEN
    done = restart_selected(world.app.resources, Selection(kind="ProcessTimeout"))
    assert (done.tasks, done.processes) == (0, 1)
    assert world.app.result(second, timeout=0) == [[20], 0]
    assert world.store.interruptions.count(Selection()) == 0
    check_quiet(world, second)


def test_what_was_listed_while_it_was_restarted_is_forgotten(shop: Shop, world: World) -> None:
    """By an apply that was cut off just then; the next restart of the group looks."""
    shop.refused = {2, 3}
    process_id = shop.broken(2, 3)
    first, _ = shop.paying(process_id)
    (listed,) = [one for one in world.store.interruptions.of_process(process_id) if one.id == first.id]
    shop.refused = {3}
    world.app.restart(process_id, first.task_id)
    world.pump()
    world.store.interruptions.add(listed)
    assert restart_selected(world.app.resources, Selection()).tasks == 1
    world.pump()
    assert [one.task_id for one in shop.paying(process_id) if one.failed] == [
        one.id.partition("/")[2] for one in world.store.interruptions.of_process(process_id)
    ]


def test_listed_by_an_apply_after_it_was_restarted(shop: Shop, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The apply sees that itself."""
    shop.refused = {2, 3}
    process_id = shop.broken(2, 3)
    first, second = shop.paying(process_id)
    shop.refused = set()
    interruptions, real = world.store.interruptions, world.store.interruptions.add

    def restart_then_add(one: Any) -> None:
        monkeypatch.undo()
        world.app.restart(process_id, first.task_id)
        world.pump()
        real(one)

    monkeypatch.setattr(interruptions, "add", restart_then_add)
    assert interrupt(world.app.resources, first) is Applied.BEFORE
    assert [one.id for one in interruptions.of_process(process_id)] == [second.id]


def test_the_graph_is_lost_after_a_restart_that_was_cut_off(
    shop: Shop, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And somebody else makes it again, with the task as finished, before its own end is applied."""
    shop.refused = {1}
    process_id = shop.broken(1)
    with monkeypatch.context() as cut, pytest.raises(ConnectionError):
        cut.setattr(world.store.restarts, "reopen_graphs", _cut_off)
        world.app.restart(process_id)
    shop.refused = set()
    world.store.database["graphs"].delete_one({"_id": process_id})
    (paid,) = shop.paying(process_id)
    with monkeypatch.context() as late:
        late.setattr(world.app.outbox, "put", lambda *_: None)
        run_one(world, paid)
    assert rebuild_graphs(world.app.resources, [process_id]) == [process_id]

    def runs_again() -> bool:
        world.scan()  # finished, and not applied: its deadline is soon
        return world.process(process_id).state is not ProcessState.BROKEN

    wait_until(runs_again, 10, "its apply")
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED
    assert world.store.interruptions.of_process(process_id) == []


def run_one(world: World, decision: Decision) -> None:
    """Its message was not pushed."""
    slot = Slot(world.app.resources, world.app.outbox, world.app.actors, "w#1")
    assert slot.run(world.app.actors[decision.actor], decision.id, decision.pass_key or "") is Result.FINISHED
