"""The database is away for a while: no error of the actor's, and nothing that was done is thrown away."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from recovery import heartbeat
from recovery.engine.outages import through_outage
from recovery.errors import StoreUnavailable
from recovery.records import DecisionState
from recovery.store.lifecycle.decisions import Decisions
from recovery.store.lifecycle.graphs import Graphs
from tests.store.writing import get
from tests.waiting import wait_until
from tests.world import World


def away(times: int, real: Callable[..., Any], *, after: bool = False) -> Callable[..., Any]:
    """`real`, of which the first calls find nobody; `after`: they take place, and the reply is lost."""
    left = iter(range(times))

    def step(*args: Any, **kwargs: Any) -> Any:
        if next(left, None) is None:
            return real(*args, **kwargs)
        if after:
            real(*args, **kwargs)
        raise StoreUnavailable("away")

    return step


def test_a_heartbeat_that_can_not_be_written_is_no_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    @world.app.process()
    def order() -> str:
        heartbeat()
        return "done"

    monkeypatch.setattr(Decisions, "extend", away(1, Decisions.extend))
    assert world.bring_to_end(world.app.start(order)).result == '"done"'


@pytest.mark.parametrize("after", [False, True])
def test_a_result_is_kept_until_it_can_be_written(world: World, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    calls: list[int] = []

    def order() -> str:
        calls.append(1)
        return "done"

    process_id = world.app.start(world.app.process()(order))
    monkeypatch.setattr(Decisions, "finish", away(2, Decisions.finish, after=after))
    world.pump()
    assert world.process(process_id).result == '"done"'
    assert len(calls) == 1


def test_what_was_claimed_and_can_not_be_run_is_given_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next step is claimed on the spot, and then its predecessor can't be applied: nobody runs it."""

    @world.app.actor(worker_timeout=600)
    def step(number: int) -> int:
        return number + 1

    @world.app.process()
    def order() -> Any:
        return step.schedule(1)

    process_id = world.app.start(order)
    monkeypatch.setattr("recovery.engine.lifecycle.apply.enqueue", away(1, lambda *_: 0))
    with pytest.raises(StoreUnavailable):
        world.pump()
    (child,) = [d for d in world.decisions(process_id).values() if d.actor == "step"]
    assert (child.state, child.timeouts) == (DecisionState.QUEUED, 0)
    assert world.bring_to_end(process_id).result == "2"


@pytest.mark.parametrize("after", [False, True])
def test_a_claim_whose_reply_is_lost_is_given_back(world: World, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    """Its message is used up, whether it was claimed or not."""
    process_id = world.app.start(world.app.process("order", worker_timeout=600)(lambda: "done"))
    monkeypatch.setattr(Decisions, "claim", away(1, Decisions.claim, after=after))
    with pytest.raises(StoreUnavailable):
        world.pump()
    world.pump()  # no scan: a message is there
    assert world.process(process_id).result == '"done"'


@pytest.mark.parametrize("after", [False, True])
def test_a_step_is_finished_and_the_next_is_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    calls: list[int] = []

    @world.app.actor(worker_timeout=600)
    def step(number: int) -> int:
        calls.append(number)
        return number + 1

    @world.app.process()
    def order() -> Any:
        return step.schedule(step.schedule(step.schedule(1)))

    process_id = world.app.start(order)
    monkeypatch.setattr(Decisions, "finish_and_claim", away(1, Decisions.finish_and_claim, after=after))
    world.pump()  # no scan: what was claimed, and its reply lost, has a message again
    assert world.process(process_id).result == "4"
    assert calls == [1, 2, 3], "each once"


@pytest.mark.parametrize("other", ["elsewhere#1", "w#1#8"])
def test_the_same_message_twice_takes_no_claim_from_another(
    world: World, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """Who got it second could not ask: the claim is another worker's, or another thread's, and is left alone."""
    order = world.app.process("order", worker_timeout=600)(lambda: "done")
    key = f"{world.app.start(order)}/start"
    pass_key = get(world.store, key).pass_key
    assert pass_key is not None
    world.store.decisions.claim("order", key, pass_key, other, 600)
    monkeypatch.setattr(Decisions, "claim", away(1, Decisions.claim))
    with pytest.raises(StoreUnavailable):
        world.pump("w#1")
    held = get(world.store, key)
    assert (held.state, held.pass_key, held.worker) == (DecisionState.WORKING, pass_key, other)


def test_an_apply_that_failed_is_done_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    @world.app.process()
    def order() -> str:
        return "done"

    process_id = world.app.start(order)
    monkeypatch.setattr(Graphs, "apply", away(1, Graphs.apply))
    with pytest.raises(StoreUnavailable):
        world.pump()
    assert world.bring_to_end(process_id).result == '"done"'


def test_the_end_of_an_outage_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert through_outage(away(0, lambda: 1), 10, "a step") == 1
    assert caplog.messages == []
    assert through_outage(away(1, lambda: 2), 10, "a step") == 2
    assert [message.split(",")[0] for message in caplog.messages[1:]] == ["a step: the database is back"]


def test_patience_has_an_end() -> None:
    with pytest.raises(StoreUnavailable):
        through_outage(away(1000, lambda: None), 0.3, "a step")


def test_a_try_that_hung_until_the_end_of_patience_is_not_the_last() -> None:
    """It tells how the database was when it began."""
    tries: list[float] = []

    def hangs_once() -> str:
        tries.append(time.monotonic())
        if len(tries) == 1:
            wait_until(lambda: time.monotonic() > tries[0] + 0.2, 5, "the end of patience")
            raise StoreUnavailable("away")
        return "done"

    assert through_outage(hangs_once, 0.1, "a step") == "done"
