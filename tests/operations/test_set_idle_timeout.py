"""Processes that were started already get another idle timeout: deadlines follow it, and nobody's write is lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from recovery import InputError, operations
from recovery.operations import OperationRequest
from recovery.operations.kinds import kind_of
from recovery.records import OperationKind, OperationResult, ProcessState, ResultState
from recovery.scan import GraphScanner
from recovery.settings import Settings
from tests.operations.ordering import WHY, Ordering, adds_up
from tests.world import by_message_only

HOUR, SOON = 3600.0, 5.0


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied)


def set_to(world: Ordering, seconds: float, selection: str = "") -> dict[str, OperationResult]:
    """The results of an operation that was applied."""
    done = world.run_through("set_idle_timeout", selection, idle_timeout=seconds)
    adds_up(world, done)
    return world.results(done)


def kept(world: Ordering, process_id: str) -> list[tuple[float, float | None]]:
    """[(idle timeout, seconds until the deadline)] of the process and of its graph."""
    graph = world.store.graphs.get(process_id)
    assert graph is not None
    now = world.store.now()
    return [
        (one.idle_timeout, one.recovery_time and (one.recovery_time - now).total_seconds())
        for one in (world.process(process_id), graph)
    ]


def healthy_for_an_hour(world: Ordering) -> str:
    """A process that runs, whose deadlines were found healthy until they are an hour off."""
    (process_id,) = world.orders(1)
    for name in ("processes", "graphs"):
        far = {"recoveryTime": world.store.now() + timedelta(seconds=HOUR), "idleTimeout": HOUR}
        world.store.database[name].update_one({"_id": process_id}, {"$set": far})
    return process_id


def test_a_shorter_one_holds_from_now_on(world: Ordering) -> None:
    process_id = healthy_for_an_hour(world)
    result = set_to(world, SOON, "state:running")[process_id]
    assert (result.state, result.plan) == (ResultState.DONE, "idle timeout 1h → 5s")
    assert (result.before, result.after) == ("running/0/0, idle timeout 1h", "running/0/0, idle timeout 5s")
    for seconds, ahead in kept(world, process_id):
        assert seconds == SOON and ahead is not None and 0 < ahead <= SOON
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED


def test_a_longer_one_leaves_the_deadline_that_is_nearer(world: Ordering) -> None:
    """Who set that may have wanted it near; the looks after it come as the new one says."""
    (process_id,) = world.orders(1)
    before = kept(world, process_id)
    set_to(world, HOUR)
    for (_, was), (seconds, ahead) in zip(before, kept(world, process_id), strict=True):
        assert seconds == HOUR and was is not None and ahead is not None and ahead <= was
    past = {"recoveryTime": world.store.now() - timedelta(seconds=1)}
    world.store.database["graphs"].update_one({"_id": process_id}, {"$set": past})
    GraphScanner(world.app.resources, world.app.outbox).run_once()
    ahead = kept(world, process_id)[1][1]
    assert ahead is not None and ahead > 0.8 * HOUR


def test_one_without_a_deadline_gets_one(world: Ordering) -> None:
    (process_id,) = world.orders(1)
    lost = {"$unset": {"recoveryTime": 1}}
    world.store.database["processes"].update_one({"_id": process_id}, lost, bypass_document_validation=True)
    set_to(world, HOUR)
    ahead = kept(world, process_id)[0][1]
    assert ahead is not None and ahead <= HOUR


def test_what_is_broken_has_it_once_it_is_restarted(world: Ordering) -> None:
    (refund,) = world.refunds(1)
    world.store.graphs.clear_deadlines([refund])
    assert [one[1] for one in kept(world, refund)] == [None, None]
    result = set_to(world, 7.0)[refund]
    assert result.state is ResultState.DONE and result.plan.endswith("→ 7s once it is restarted")
    assert kept(world, refund) == [(7.0, None), (7.0, None)], "it is at rest"
    world.broken = False
    world.app.restart(refund)
    assert all(seconds == 7.0 and ahead is not None for seconds, ahead in kept(world, refund)[1:])
    assert world.bring_to_end(refund).state is ProcessState.FINISHED


def test_what_has_ended_and_what_has_it_already_is_not_in_the_plan(world: Ordering) -> None:
    [world.end_of(one) for one in world.orders(2)]
    (running,) = world.orders(1)
    assert set_to(world, 7.0).keys() == {running}
    planned = world.bring_on(world.ask("set_idle_timeout", idle_timeout=7.0))
    assert planned.planned is not None and (planned.planned.processes, planned.planned.found) == (3, 0)


def test_a_graph_that_holds_another_than_its_process_is_brought_after_it(world: Ordering) -> None:
    """Of whatever type: another program wrote it."""
    odd = world.orders(3)
    set_to(world, 7.0)
    for process_id, value in zip(odd, (9.0, "soon", None), strict=True):
        change: dict[str, Any] = {"$set": {"idleTimeout": value}} if value else {"$unset": {"idleTimeout": 1}}
        world.store.database["graphs"].update_one({"_id": process_id}, change, bypass_document_validation=True)
    assert {one.state for one in set_to(world, 7.0).values()} == {ResultState.DONE}
    assert [kept(world, one)[1][0] for one in odd] == [7.0] * 3


def test_what_changed_since_it_was_planned_is_left_alone(world: Ordering) -> None:
    aborted, other = world.orders(2)
    planned = world.bring_on(world.ask("set_idle_timeout", idle_timeout=7.0))
    world.app.abort(aborted, "a test")
    set_to(world, 9.0, f"id:{other}")
    (late,) = world.orders(1)
    operations.apply(world.app.resources, planned.id)
    results = world.results(world.bring_on(planned))
    assert {key: result.state for key, result in results.items()} == dict.fromkeys(
        (aborted, other), ResultState.CHANGED
    )
    assert late not in results and world.process(aborted).state is ProcessState.ABORTED
    assert (results[other].error or "").endswith("now running/0/0, idle timeout 9s")
    assert [seconds for seconds, _ in kept(world, other)] == [9.0, 9.0]


def before_the_first(world: Ordering, patched: pytest.MonkeyPatch, name: str, then: Callable[[], object]) -> list[str]:
    """Have something done just before the first call of an update; the list is not empty once it was."""
    owner, met = type(world.store.idle_timeouts), list[str]()
    update = getattr(owner, name)

    def overtaken(self: Any, *args: Any) -> Any:
        if not met:
            met.append(name)
            then()
        return update(self, *args)

    patched.setattr(owner, name, overtaken)
    return met


@pytest.mark.parametrize("place", ["set_processes", "set_graphs"])
def test_two_at_once_end_with_one_of_them_in_both_records(
    world: Ordering, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The whole second one passes before the first one's write: it stays, and the first one says so."""
    (process_id,) = world.orders(1)
    first = world.bring_on(world.ask("set_idle_timeout", idle_timeout=7.0))
    kind = kind_of(OperationKind.SET_IDLE_TIMEOUT, world.app.resources, world.app.outbox)
    met = before_the_first(world, monkeypatch, place, lambda: set_to(world, 9.0))
    (result,) = kind.apply(first, [*world.results(first).values()])
    assert met and result.state is ResultState.CHANGED
    assert [seconds for seconds, _ in kept(world, process_id)] == [9.0, 9.0]


def test_the_graph_of_the_one_before_comes_late(world: Ordering, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever set the process last finds its graph changed under his hand, and brings it after the process."""
    (process_id,) = world.orders(1)
    graphs, late = world.store.database["graphs"], {"$set": {"idleTimeout": 9.0}}
    met = before_the_first(world, monkeypatch, "set_graphs", lambda: graphs.update_one({"_id": process_id}, late))
    assert set_to(world, 7.0)[process_id].state is ResultState.DONE
    assert met and [seconds for seconds, _ in kept(world, process_id)] == [7.0, 7.0]


def test_cut_off_between_process_and_graph(world: Ordering) -> None:
    (process_id,) = world.orders(1)
    planned = world.bring_on(world.ask("set_idle_timeout", idle_timeout=7.0))
    kind = kind_of(OperationKind.SET_IDLE_TIMEOUT, world.app.resources, world.app.outbox)
    (result,) = world.results(planned).values()
    world.store.idle_timeouts.set_processes(world.process(process_id), [process_id], 7.0)
    (done,) = kind.apply(planned, [result.evolve(begun=True)])
    assert done.state is ResultState.DONE
    assert [seconds for seconds, _ in kept(world, process_id)] == [7.0, 7.0]


def test_a_process_that_goes_on_meanwhile_loses_nothing(world: Ordering) -> None:
    """Its graph is applied to between plan and apply, and has its new version and its new timeout."""
    (process_id,) = world.orders(1)
    planned = world.bring_on(world.ask("set_idle_timeout", idle_timeout=7.0))
    with by_message_only():
        world.take_one("order")
    before = world.store.graphs.get(process_id)
    operations.apply(world.app.resources, planned.id)
    result = world.results(world.bring_on(planned))[process_id]
    after = world.store.graphs.get(process_id)
    assert result.state is ResultState.DONE and before is not None and after is not None
    same = after.evolve(idle_timeout=before.idle_timeout, recovery_time=before.recovery_time)
    assert same == before and after.idle_timeout == 7.0


@pytest.mark.parametrize(
    ("kind", "seconds", "said"),
    [
        ("set_idle_timeout", None, "--idle-timeout is required for set_idle_timeout, for example 10m"),
        ("set_idle_timeout", 0, "--idle-timeout 0s: must be at least 0.001 seconds"),
        ("set_idle_timeout", -5.0, "--idle-timeout -5s: must be at least"),
        ("set_idle_timeout", float("nan"), "--idle-timeout nans?: must be"),
        ("set_idle_timeout", 1e12, "--idle-timeout .*: must be .* up to 10 years"),
        ("set_idle_timeout", "10m", "--idle-timeout '10m': must be"),
        ("set_idle_timeout", True, "--idle-timeout True: must be"),
        ("abort", 600.0, "--idle-timeout 10m: is for set_idle_timeout; abort sets none"),
    ],
)
def test_what_can_not_be(world: Ordering, kind: str, seconds: Any, said: str) -> None:
    world.orders(1)
    with pytest.raises(InputError, match=said):
        operations.start(world.app.resources, OperationRequest(kind, everything=True, idle_timeout=seconds), WHY)
    assert world.store.operations.newest(1) == []
