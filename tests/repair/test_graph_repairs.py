"""Repairs of graphs on processes that really run: what was decided stays, and what changed meanwhile wins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from recovery import store as store_module
from recovery.engine import rebuild_graphs
from recovery.engine.operators.restart import Restarts, restart_selected
from recovery.errors import InputError
from recovery.records import DecisionState, ErrorInfo, ProcessState
from recovery.records.ids import record_id
from recovery.repair import Done, Repairer, look_around
from recovery.rules import Finding, Rule, Surroundings, judge_process
from recovery.store import Selection
from tests.world import World, check_quiet

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def actors(world: World) -> None:
    """`order`: the sum of what `spread` promises of its three parts, and one more."""
    part = world.app.actor("part")(lambda number: number)
    gather = world.app.actor("gather")(lambda numbers: sum(numbers))
    spread = world.app.actor("spread")(lambda: gather.schedule([part.schedule(n) for n in (1, 2, 3)]))
    add = world.app.actor("add")(lambda one, other: one + other)
    world.app.process("order")(lambda: add.schedule(spread.schedule(), part.schedule(4)))


@pytest.fixture
def process_id(world: World) -> str:
    return world.start("order")


def run(world: World, *actors: str) -> None:
    """Run what waits for these actors, one after the other."""
    for actor in actors:
        assert world.pump(serve={actor: world.app.actors[actor]}), f"nothing waits for {actor}"


def task(world: World, process_id: str, actor: str) -> str:
    return min(name for name, decision in world.decisions(process_id).items() if decision.actor == actor)


def change(world: World, collection: str, key: str, **fields: Any) -> None:
    """By a raw update, past the validator."""
    update = {"q": {"_id": key}, "u": {"$set": fields}}
    assert world.store.database.command("update", collection, updates=[update], bypassDocumentValidation=True)["n"]


def diagnose(world: World, *process_ids: str) -> tuple[list[Finding], Surroundings]:
    """What is wrong with processes that nobody has touched for an hour."""
    past = world.store.now() - HOUR
    world.store.database["graphs"].update_many({}, {"$set": {"touchedAt": past}})
    around = look_around(world.app.resources, queues=world.app.actors)
    findings = [f for snapshot in world.store.snapshots(process_ids) for f in judge_process(snapshot, around)]
    return findings, around


def repair(world: World, *process_ids: str) -> Done:
    return Repairer(world.app.resources, world.app.outbox).repair(*diagnose(world, *process_ids)).done


def ends_well(world: World, process_id: str) -> None:
    process = world.bring_to_end(process_id)
    assert (process.state, process.result) == (ProcessState.FINISHED, "10"), process.error
    check_quiet(world, process_id)


def test_a_link_to_a_promise_becomes_one_to_what_was_promised(world: World, process_id: str) -> None:
    """Dropped only, `add` would be run with a value that is still to come."""
    run(world, "order", "spread")
    add, spread, gather = (task(world, process_id, actor) for actor in ("add", "spread", "gather"))
    part = next(iter(set(links(world, process_id)[add]) - {gather}))
    change(world, "graphs", process_id, **{f"links.{add}": {spread: True, part: True, "nobody": True}})
    assert repair(world, process_id) == {Rule.DEAD_LINK: 1}
    assert links(world, process_id)[add] == {gather: True, part: True}
    ends_well(world, process_id)


def test_a_link_to_who_scheduled_the_task_is_only_dropped(world: World, process_id: str) -> None:
    """With its children the task would wait for itself."""
    run(world, "order", "spread")
    gather, spread = task(world, process_id, "gather"), task(world, process_id, "spread")
    before = links(world, process_id)[gather]
    change(world, "graphs", process_id, **{f"links.{gather}": {**before, "start": True, spread: True}})
    assert repair(world, process_id) == {Rule.DEAD_LINK: 1}
    assert links(world, process_id)[gather] == before
    assert world.decisions(process_id)[gather].state is DecisionState.WAITING, "its parts are still to come"
    ends_well(world, process_id)


def links(world: World, process_id: str) -> dict[str, dict[str, bool]]:
    graph = world.store.graphs.get(process_id)
    assert graph is not None
    return {name: dict(waits) for name, waits in graph.links.items()}


def test_tasks_put_back_together_wait_for_each_other(world: World, process_id: str) -> None:
    """A primary that was lost took both decisions with it; the one that needs the other's value must come second."""
    run(world, "order", "spread", "part", "gather")
    part, gather = task(world, process_id, "part"), task(world, process_id, "gather")
    assert gather in world.store.tasks.dependents([record_id(process_id, part)])[record_id(process_id, part)]
    world.redis.flushdb()
    for name in (part, gather):
        lost = {"state": DecisionState.WAITING.value, "recoveryTime": None}
        change(world, "decisions", record_id(process_id, name), **lost)
        world.store.database["decisions"].update_one({"_id": record_id(process_id, name)}, {"$unset": {"outcome": 1}})
    assert repair(world, process_id) == {Rule.FINISHED_UNDECIDED: 2}
    states = world.decisions(process_id)
    assert (states[part].state, states[gather].state) == (DecisionState.QUEUED, DecisionState.WAITING)
    assert links(world, process_id)[gather] == {part: True}
    ends_well(world, process_id)


def test_what_is_finished_by_now_is_not_put_back(world: World, process_id: str) -> None:
    """It was not when it was judged: a result came, or came back, since."""
    run(world, "order", "spread", "part")
    part = {"_id": record_id(process_id, task(world, process_id, "part"))}
    decisions = world.store.database["decisions"]
    done = decisions.find_one(part)
    assert done is not None and done["state"] == "finished"
    decisions.update_one(part, {"$set": {"state": DecisionState.WAITING.value}, "$unset": {"outcome": 1}})
    findings, around = diagnose(world, process_id)
    assert (Rule.FINISHED_UNDECIDED, part["_id"]) in {(one.rule, one.record) for one in findings}
    decisions.replace_one(part, done)
    before = world.store.graphs.get(process_id)
    found = [one for one in findings if one.rule is Rule.FINISHED_UNDECIDED]
    assert Repairer(world.app.resources, world.app.outbox).repair(found, around).done == {}
    assert world.store.graphs.get(process_id) == before
    ends_well(world, process_id)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 40])
def test_lost_graphs_are_made_again_in_a_few_round_trips(world: World, count: int) -> None:
    process_ids = [world.start("order") for _ in range(count)]
    run(world, "order")
    world.store.database["graphs"].delete_many({})
    findings, around = diagnose(world, *process_ids)
    before = asked(world)
    assert Repairer(world.app.resources, world.app.outbox).repair(findings, around).done == {Rule.GRAPH_MISSING: count}
    assert asked(world) - before < 20, "the server's own housekeeping may come in between"
    for process_id in process_ids:
        ends_well(world, process_id)


def test_of_large_processes_few_are_held_in_memory_at_once(
    world: World, process_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_ids = [process_id, *(world.start("order") for _ in range(4))]
    run(world, "order")
    tasks = len(world.decisions(process_id))
    world.store.database["graphs"].delete_many({})
    monkeypatch.setattr(store_module, "PORTION_TASKS", 2 * tasks)
    read, real = list[int](), world.store.decisions.of_processes
    monkeypatch.setattr(world.store.decisions, "of_processes", lambda ids: (read.append(len(ids)), real(ids))[1])
    assert sorted(rebuild_graphs(world.app.resources, process_ids)) == sorted(process_ids)
    assert read == [2, 2, 1]
    for one in process_ids:
        ends_well(world, one)


def sent(world: World) -> int:
    """Bytes that the database has sent."""
    return int(world.store.database.command("serverStatus")["network"]["bytesOut"])


@pytest.mark.parametrize("lost", ["decision", "task"])
def test_what_a_repair_does_not_need_is_not_read(world: World, lost: str) -> None:
    """Arguments and values may be megabytes."""
    size = 2_000_000
    take = world.app.actor("take")(lambda text: text)
    measure = world.app.actor("measure")(lambda text: len(text))
    world.app.process("large")(lambda text: measure.schedule(take.schedule(text)))
    process_id = world.start("large", "x" * size)
    run(world, "large", *(["take"] if lost == "decision" else []))
    of_it = {"_id": record_id(process_id, task(world, process_id, "take"))}
    if lost == "decision":  # and with it that it had ended
        change(world, "decisions", of_it["_id"], state=DecisionState.WAITING.value, recoveryTime=None, outcome=None)
        rule, most = Rule.FINISHED_UNDECIDED, 0
    else:
        world.store.database["tasks"].delete_one(of_it)
        # The parent's decision, which has the arguments, and its own Task, which has them as well.
        rule, most = Rule.TASK_MISSING, 2
    findings, around = diagnose(world, process_id)
    before = sent(world)
    assert Repairer(world.app.resources, world.app.outbox).repair(findings, around).done == {rule: 1}
    assert sent(world) - before < (most + 0.5) * size


def asked(world: World) -> int:
    counts = world.store.database.command("serverStatus")["opcounters"]
    return sum(counts[kind] for kind in ("query", "update", "getmore", "command")) - counts["command"]


def test_one_damaged_process_does_not_hold_up_the_others(
    world: World, caplog: pytest.LogCaptureFixture, process_id: str
) -> None:
    other = world.start("order")
    run(world, "order")
    around = diagnose(world, process_id, other)[1]
    world.store.database["graphs"].delete_many({})
    findings = diagnose(world, process_id, other)[0]
    change(world, "decisions", record_id(other, "start"), children="nonsense")
    assert Repairer(world.app.resources, world.app.outbox).repair(findings, around).done == {Rule.GRAPH_MISSING: 1}
    assert other in caplog.text
    assert world.store.graphs.absent([process_id, other]) == {other}


def cycle(world: World, process_id: str) -> None:
    part, gather = task(world, process_id, "part"), task(world, process_id, "gather")
    change(world, "graphs", process_id, **{f"links.{part}": {gather: True}})


def task_lost(world: World, process_id: str) -> None:
    """And its parent's decision does not tell of it any more."""
    of_it = {"_id": record_id(process_id, task(world, process_id, "gather"))}
    world.store.database["backup"].insert_many(world.store.database["tasks"].find(of_it))
    world.store.database["tasks"].delete_one(of_it)
    spread = record_id(process_id, task(world, process_id, "spread"))
    world.store.database["decisions"].update_one({"_id": spread}, {"$unset": {"children": 1}})


def graph_changed(world: World, process_id: str) -> None:
    """What any apply does."""
    world.store.database["graphs"].update_one({"_id": process_id}, {"$inc": {"version": 1}})


def touched(world: World, process_id: str) -> None:
    change(world, "graphs", process_id, touchedAt=world.store.now())


def mended(world: World, _: str) -> None:
    """By an operator, from a backup: the graph is not touched by that."""
    world.store.database["tasks"].insert_many(world.store.database["backup"].find())


@pytest.mark.parametrize("fault", [cycle, task_lost])
def test_what_can_not_go_on_is_broken_once(world: World, process_id: str, fault: Callable[[World, str], None]) -> None:
    run(world, "order", "spread")
    fault(world, process_id)
    rule = Rule.CYCLE if fault is cycle else Rule.TASK_MISSING
    findings, around = diagnose(world, process_id)
    repairer = Repairer(world.app.resources, world.app.outbox)
    assert repairer.repair(findings, around).done == {rule: 1}
    process = world.process(process_id)
    assert process.state is ProcessState.BROKEN
    assert isinstance(process.error, ErrorInfo) and process.error.message.startswith(rule)
    # On a slow machine others are waited for by now, too.
    broken = [finding.record for finding in findings if finding.rule is rule]
    assert [one.id for one in world.store.interruptions.of_process(process_id)] == broken
    assert repairer.repair(findings, around).done == {}


@pytest.mark.parametrize("moment", ["before it is judged again", "before it is noted", "before it is broken"])
@pytest.mark.parametrize(
    ("fault", "change_meanwhile"),
    [(cycle, graph_changed), (task_lost, touched), (task_lost, graph_changed), (task_lost, mended)],
)
def test_what_changed_since_it_was_judged_is_not_broken(
    world: World,
    process_id: str,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[World, str], None],
    change_meanwhile: Callable[[World, str], None],
    moment: str,
) -> None:
    run(world, "order", "spread")
    fault(world, process_id)
    findings, around = diagnose(world, process_id)
    assert findings
    store = world.store
    target, name = {
        "before it is judged again": (store, "snapshot_pages"),
        "before it is noted": (store.graphs, "fail_seen"),
        "before it is broken": (store.processes, "break_"),
    }[moment]
    step = getattr(target, name)

    def meanwhile(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(target, name, step)
        change_meanwhile(world, process_id)
        return step(*args, **kwargs)

    monkeypatch.setattr(target, name, meanwhile)
    done = Repairer(world.app.resources, world.app.outbox).repair(findings, around).done
    # What is decided stays so, and a record that comes back once its loss was noted comes too late.
    late = moment == "before it is broken" or (moment == "before it is noted" and change_meanwhile is not graph_changed)
    # To touch the graph is no change of what is open or waits; judged later, it is only too soon to judge.
    assert bool(done) is late
    assert world.process(process_id).state is (ProcessState.BROKEN if late else ProcessState.RUNNING)


def test_what_was_given_up_stays_listed(world: World, process_id: str) -> None:
    """It can't be restarted; until it is aborted somebody has to look at it."""
    run(world, "order", "spread")
    cycle(world, process_id)
    assert repair(world, process_id) == {Rule.CYCLE: 1}
    assert restart_selected(world.app.resources, Selection()) == Restarts()
    assert [one.kind for one in world.store.interruptions.of_process(process_id)] == ["Cycle"]
    with pytest.raises(InputError, match="abort it"):
        world.app.restart(process_id)


def risky(world: World) -> str:
    """A process of which one task is going to fail."""
    actors = world.app.actors
    bad = world.app.actor("bad")(lambda: 1 / 0)
    world.app.process("risky")(lambda: actors["gather"].schedule([actors["part"].schedule(1), bad.schedule()]))
    process_id = world.start("risky")
    run(world, "risky")
    return process_id


def test_a_task_fails_while_another_is_given_up(world: World, process_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are listed, by the next look at the latest: with one of them restarted it is broken for the other."""
    process_id = risky(world)
    cycle(world, process_id)
    findings, around = diagnose(world, process_id)
    break_ = world.store.processes.break_

    def fail_first(*args: Any) -> bool:
        monkeypatch.setattr(world.store.processes, "break_", break_)
        run(world, "bad")
        return break_(*args)

    monkeypatch.setattr(world.store.processes, "break_", fail_first)
    Repairer(world.app.resources, world.app.outbox).repair(findings, around)
    assert {one.kind for one in world.store.interruptions.of_process(process_id)} == {"Cycle", "ZeroDivisionError"}


def test_a_task_fails_before_another_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is broken already, for something else: what was seen does not hold any more."""
    process_id = risky(world)
    cycle(world, process_id)
    findings, around = diagnose(world, process_id)
    give_up = world.store.graphs.fail_seen

    def fail_first(*args: Any) -> bool:
        run(world, "bad")
        return give_up(*args)

    monkeypatch.setattr(world.store.graphs, "fail_seen", fail_first)
    assert Repairer(world.app.resources, world.app.outbox).repair(findings, around).done == {}
    assert [one.kind for one in world.store.interruptions.of_process(process_id)] == ["ZeroDivisionError"]
