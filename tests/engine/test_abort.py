"""Abort: a process ends at once, whatever of it is under way, and nothing of it runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from recovery import ClaimLost, InputError, ProcessBroken, ProcessNotFound, heartbeat
from recovery.engine import finish_process
from recovery.engine.apply.apply import apply
from recovery.engine.end.abort import finish_abort
from recovery.engine.operators import abort
from recovery.engine.operators.abort import abort_selected
from recovery.engine.operators.restart import restart_selected
from recovery.engine.start.registration import register
from recovery.engine.steps import Applied, Ended
from recovery.records import Decision, DecisionState, Outcome, Process, ProcessState
from recovery.store import Selection
from tests.counting import operations
from tests.store import single
from tests.waiting import wait_until
from tests.world import World


@pytest.fixture
def ran(world: World) -> Iterator[list[str]]:
    """What ran, of `order`: two steps in a row, and one beside them. `fail` fails."""
    names: list[str] = []

    @world.app.actor()
    def step(name: str, *_: Any) -> Any:
        names.append(name)
        if name == "fail":
            raise ValueError("no")
        return name

    @world.app.process()
    def order(*beside: str) -> Any:
        first = step.schedule("first")
        return [step.schedule("second", first), *(step.schedule(name) for name in beside)]

    yield names


def only(world: World, name: str) -> dict[str, Any]:
    return {name: world.app.actors[name]}


def begun(world: World, *beside: str) -> str:
    """A process of which the start has run, and nothing else."""
    process_id = world.start("order", *beside)
    world.pump(serve=only(world, "order"))
    return process_id


def check_aborted(world: World, process_id: str) -> Process:
    """All records are at rest, the process's last words are the abort's, and nothing runs on."""
    before = {name: list(world.store.database[name].find()) for name in ("decisions", "graphs", "processes")}
    world.pump()
    world.scan()
    assert {name: list(world.store.database[name].find()) for name in before} == before
    for name, records in before.items():
        assert not [record for record in records if "recoveryTime" in record], name
    assert all(record["state"] == "finished" for record in before["decisions"])
    assert world.store.interruptions.of_process(process_id) == []
    process = world.process(process_id)
    assert process.state is ProcessState.ABORTED
    assert process.ended_at is not None
    return process


@pytest.mark.parametrize("registered", [True, False])
def test_before_anything_ran(world: World, ran: list[str], registered: bool) -> None:
    process_id = world.start("order")
    if not registered:
        for name in ("tasks", "decisions", "graphs"):
            world.store.database[name].delete_many({})
    world.app.abort(process_id, "a mistake")
    process = check_aborted(world, process_id)
    assert (process.epoch, process.result) == (1, None)
    assert ran == []
    with pytest.raises(ProcessBroken, match=f"process {process_id}: Aborted: a mistake") as told:
        world.app.result(process_id)
    assert told.value.state == "aborted"


def test_a_start_that_is_under_way_finds_it_aborted(world: World, ran: list[str]) -> None:
    process_id = world.start("order")
    process = world.process(process_id)
    for name in ("tasks", "decisions", "graphs"):
        world.store.database[name].delete_many({})
    world.app.abort(process_id, "a mistake")
    register(world.app.resources, {process.id: world.store.now()}, [process])
    check_aborted(world, process_id)
    assert ran == []


def test_what_is_queued_or_waits_is_not_run(world: World, ran: list[str]) -> None:
    process_id = begun(world, "beside")
    world.app.abort(process_id, "a mistake")
    check_aborted(world, process_id)
    assert ran == []
    kinds = {d.outcome.error.kind for d in world.decisions(process_id).values() if d.outcome and d.outcome.error}
    assert kinds == {"Aborted"}


@pytest.mark.usefixtures("ran")
def test_of_a_broken_one(world: World) -> None:
    process_id = begun(world, "fail", "beside")
    world.pump()
    assert world.process(process_id).state is ProcessState.BROKEN
    wait_until(lambda: world.scan() or not live(world), 5, "all at rest")
    world.app.abort(process_id, "not worth it")
    process = check_aborted(world, process_id)
    assert process.error is not None
    assert (process.error.kind, process.error.message) == ("Aborted", "not worth it")
    assert restart_selected(world.app.resources, Selection()).tasks == 0
    with pytest.raises(InputError, match="is aborted; only tasks of a broken process can be restarted"):
        world.app.restart(process_id)


def live(world: World) -> int:
    at_rest = {"recoveryTime": {"$exists": True}}
    return sum(world.store.database[name].count_documents(at_rest) for name in ("decisions", "graphs", "processes"))


def test_what_runs_loses_its_claim_and_its_result_is_stale(world: World) -> None:
    told: list[str] = []

    def order(how: str) -> str:
        world.app.abort(world.app.resources.store.database["processes"].find({"state": "running"})[0]["_id"], "stop")
        try:
            heartbeat()
        except ClaimLost as lost:
            told.append(str(lost))
            if how == "stops":
                raise
        return "a value"

    world.app.process()(order)
    for how in ("stops", "goes on"):
        process_id = world.start("order", how)
        world.pump()
        assert world.process(process_id).state is ProcessState.ABORTED
        (decision,) = world.decisions(process_id).values()
        assert decision.outcome is not None
        assert decision.outcome.error is not None
        assert decision.outcome.error.kind == "Aborted"
    assert len(told) == 2


# Interleavings.


def finished(world: World, process_id: str) -> Ended:
    """A step that is finished, and not applied."""
    decision = next(d for d in world.decisions(process_id).values() if d.state is DecisionState.QUEUED)
    claimed = single.claim(world.store, decision.actor, decision.id, str(decision.pass_key), "w#1", 5)
    assert claimed is not None
    outcome = Outcome(pass_key=str(decision.pass_key), value='"first"')
    options: dict[str, Any] = {"accept_first": True, "worker": "w#1", "apply_timeout": 5}
    assert single.finish(world.store, claimed, outcome, (), **options)
    task = world.store.tasks.get(claimed.id)
    assert task is not None
    return Ended(task, claimed.evolve(outcome=outcome))


def test_between_finish_and_apply(world: World, ran: list[str]) -> None:
    process_id = begun(world)
    ended = finished(world, process_id)
    world.app.abort(process_id, "stop")
    (effect,) = apply(world.app.resources, [ended])
    assert effect.applied is Applied.STALE
    check_aborted(world, process_id)
    assert ran == []


STEPS = ["close_graphs", "end_decisions", "clear_graph_deadlines"]


@pytest.mark.parametrize("step", STEPS)
def test_an_apply_between_its_steps(world: World, ran: list[str], step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may still queue what became ready; that is ended with the rest."""
    process_id = begun(world)
    ended = finished(world, process_id)
    before(world, step, lambda: apply(world.app.resources, [ended]), monkeypatch)
    world.app.abort(process_id, "stop")
    check_aborted(world, process_id)
    assert ran == []


@pytest.mark.parametrize("step", STEPS)
def test_work_between_its_steps(world: World, ran: list[str], step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the graph knows of it work may go on; then not."""
    process_id = begun(world)
    before(world, step, world.pump, monkeypatch)
    world.app.abort(process_id, "stop")
    check_aborted(world, process_id)
    assert len(ran) == {"close_graphs": 2, "end_decisions": 2, "clear_graph_deadlines": 0}[step]


@pytest.mark.usefixtures("ran")
@pytest.mark.parametrize("step", STEPS)
def test_a_task_that_fails_between_its_steps(world: World, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    process_id = begun(world, "fail")
    before(world, step, world.pump, monkeypatch)
    world.app.abort(process_id, "stop")
    check_aborted(world, process_id)


@pytest.mark.parametrize("step", ["end", *STEPS])
def test_a_restart_between_its_steps(world: World, ran: list[str], step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that read the process while it was broken."""
    process_id = begun(world, "fail")
    world.pump()
    seen = world.process(process_id)
    assert seen.state is ProcessState.BROKEN
    processes = world.store.processes
    real, still = processes.briefs, dict[str, Process]()

    def restart() -> None:
        still[process_id] = seen
        restart_selected(world.app.resources, Selection())
        still.clear()

    monkeypatch.setattr(processes, "briefs", lambda ids: {**real(ids), **still})
    before(world, step, restart, monkeypatch)
    world.app.abort(process_id, "stop")
    check_aborted(world, process_id)
    assert ran.count("fail") == 1


def before(world: World, step: str, happens: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have something happen just before a step of the next abort."""
    aborts, real = world.store.aborts, getattr(world.store.aborts, step)

    def then(*args: Any) -> Any:
        happens()
        return real(*args)

    monkeypatch.setattr(aborts, step, then)


@pytest.mark.usefixtures("ran")
@pytest.mark.parametrize("first", ["abort", "finish"])
def test_one_of_finish_and_abort_wins(world: World, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each having read that the process runs."""
    process_id, processes = begun(world), world.store.processes
    real = processes.finish

    def late(*args: Any) -> bool:
        monkeypatch.undo()
        if first == "abort":
            world.app.abort(process_id, "stop")
        else:
            assert real(*args)
            with pytest.raises(InputError, match="has finished; there is nothing to abort"):
                world.app.abort(process_id, "stop")
        return real(*args)

    monkeypatch.setattr(processes, "finish", late)
    world.pump()
    if first == "abort":
        check_aborted(world, process_id)
    else:
        assert world.app.result(process_id) == ["second"]
    assert finish_process(world.app.resources, process_id, 0) is (None if first == "abort" else False)


@pytest.mark.usefixtures("ran")
def test_aborted_twice_the_first_reason_stays(world: World) -> None:
    process_id = begun(world)
    world.app.abort(process_id, "first")
    world.app.abort(process_id, "second")
    error = check_aborted(world, process_id).error
    assert error is not None
    assert error.message == "first"
    assert finish_abort(world.app.resources, [process_id]) == [process_id]


@pytest.mark.usefixtures("ran")
def test_what_is_left_of_one_that_was_listed_after_its_abort(world: World) -> None:
    """By an apply that was cut off: the next command that meets it removes it."""
    process_id = begun(world, "fail")
    world.pump()
    (listed,) = world.store.interruptions.of_process(process_id)
    world.app.abort(process_id, "stop")
    world.store.interruptions.add(listed)
    assert restart_selected(world.app.resources, Selection()).tasks == 0
    check_aborted(world, process_id)


@pytest.mark.usefixtures("ran")
def test_a_group_is_aborted(world: World) -> None:
    broken = [begun(world, "fail", "fail"), begun(world, "fail")]
    well = begun(world)
    world.pump()
    assert abort_selected(world.app.resources, Selection(actor="step", kind="ValueError"), "stop") == 2
    assert [world.process(key).state for key in (*broken, well)] == ["aborted", "aborted", "finished"]
    assert abort_selected(world.app.resources, Selection(), "stop") == 0


@pytest.mark.usefixtures("ran")
@pytest.mark.parametrize("batch", [1, 100])
def test_a_limit_counts_processes(world: World, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """Not the tasks that failed in them; and not those that are listed and are over."""
    monkeypatch.setattr(abort, "BATCH", batch)
    processes = [begun(world, "fail", "fail") for _ in range(4)]
    world.pump()
    selection, interruptions = Selection(kind="ValueError"), world.store.interruptions
    assert (interruptions.count(selection), interruptions.count_processes(selection)) == (8, 4)
    listed = interruptions.of_process(processes[0])
    world.app.abort(processes[0], "stop")
    for one in listed:
        interruptions.add(one)  # by an apply that was cut off
    counted = operations("abort")
    assert abort_selected(world.app.resources, selection, "stop", limit=2) == 2
    assert [world.process(key).state for key in processes] == ["aborted", "aborted", "aborted", "broken"]
    assert operations("abort") == counted + 2


@pytest.mark.usefixtures("ran")
def test_what_cant_be_aborted(world: World) -> None:
    with pytest.raises(ProcessNotFound):
        world.app.abort("f" * 32, "stop")
    process_id = begun(world)
    for reason in ("", " ", None):
        with pytest.raises(InputError, match="say in a few words why"):
            world.app.abort(process_id, reason)  # type: ignore[arg-type]
    world.bring_to_end(process_id)
    with pytest.raises(InputError, match="has finished; there is nothing to abort"):
        world.app.abort(process_id, "stop")
    assert world.app.result(process_id) == ["second"]


@pytest.mark.usefixtures("ran")
def test_a_zombies_result_of_an_aborted_task(world: World) -> None:
    process_id = begun(world)
    decision = next(d for d in world.decisions(process_id).values() if d.state is DecisionState.QUEUED)
    claimed = single.claim(world.store, decision.actor, decision.id, str(decision.pass_key), "w#1", 5)
    assert isinstance(claimed, Decision)
    world.app.abort(process_id, "stop")
    outcome = Outcome(pass_key=str(decision.pass_key), value="1")
    options: dict[str, Any] = {"accept_first": True, "worker": "w#1", "apply_timeout": 5}
    assert not single.finish(world.store, claimed, outcome, (), **options)
    check_aborted(world, process_id)
