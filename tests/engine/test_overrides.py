"""What an operator set holds for the next claim, and for the next start; nothing of a blocked actor is begun."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recovery import Recovery
from recovery.engine import Result, Slot
from recovery.records import DecisionState
from recovery.store.lifecycle import preferences
from tests.engine.test_slot import run, start
from tests.store.writing import is_close
from tests.world import World, arguments, by_message_only


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored is known without a wait."""
    monkeypatch.setattr(preferences, "REFRESH", 0.0)


def test_a_claim_uses_what_is_set_now(world: World) -> None:
    seen: list[Any] = []

    def order() -> None:
        (decision,) = world.store.database["decisions"].find()
        seen.append(is_close(decision["recoveryTime"], decision["claimedAt"] + timedelta(seconds=500)))

    _, message = start(world, order)
    world.tell()
    world.store.actors.override("order", {"worker_timeout": 500.0})
    assert run(world, message) is Result.FINISHED
    assert seen == [True]


def test_a_blocked_actors_message_is_not_run(world: World) -> None:
    decision_id, message = start(world, lambda: "done")
    world.tell()
    world.store.actors.block("order")
    before = world.store.decisions.get(decision_id)
    assert run(world, message) is Result.BLOCKED
    assert world.store.decisions.get(decision_id) == before
    world.store.actors.unblock("order")
    assert run(world, message) is Result.FINISHED


@pytest.mark.parametrize("shape", ["child", "successor"])
def test_a_blocked_actors_task_is_not_taken_on_the_spot(world: World, shape: str) -> None:
    """Neither one that is ready with its parent, nor one that is foreseen to be."""
    ran: list[str] = []
    first = world.app.actor("first")(lambda: ran.append("first"))
    blocked = world.app.actor("blocked")(lambda _=None: ran.append("blocked"))

    @world.app.process()
    def order() -> Any:
        return blocked.schedule() if shape == "child" else blocked.schedule(first.schedule())

    world.tell()
    world.store.actors.block("blocked")
    process_id = world.start(order)
    world.pump(serve={name: world.app.actors[name] for name in ("order", "first")})
    assert "blocked" not in ran
    (waits,) = [d for d in world.decisions(process_id).values() if d.actor == "blocked"]
    assert (waits.state, waits.attempts) == (DecisionState.QUEUED, 0)
    world.store.actors.unblock("blocked")
    world.bring_to_end(process_id)
    assert ran.count("blocked") == 1


def test_what_is_claimed_already_runs(world: World) -> None:
    """A step that was claimed with its predecessor's end, and blocked in that moment."""

    @world.app.actor()
    def step(_: Any = None) -> str:
        world.store.actors.block("step")
        return "stepped"

    @world.app.process()
    def order() -> Any:
        return step.schedule()

    process_id = world.start(order)
    world.pump()
    assert world.process(process_id).result == '"stepped"'


def test_a_start_uses_what_is_set_now(app: Recovery, world: World) -> None:
    order = app.process("order", idle_timeout=50)(lambda: None)
    world.tell()
    app.resources.store.process_types.override("order", {"idle_timeout": 700.0})
    process = world.process(world.start(order))
    assert process.idle_timeout == 700
    app.resources.store.process_types.override("order", {"process_timeout": 90.0})
    process = world.process(world.start(order))
    assert process.started_at is not None
    assert process.recovery_time == process.started_at + timedelta(seconds=90), "found in time"


def test_by_message_too(world: World) -> None:
    """The same where nothing is taken on the spot."""
    child = world.app.actor("child")(lambda: "done")
    order = world.app.process("order")(child.schedule)
    world.tell()
    world.store.actors.block("child")
    process_id = world.start(order)
    with by_message_only():
        world.pump(serve={"order": world.app.actors["order"]})
        message = world.pop(["child"])
        assert message is not None
        slot = Slot(world.app.resources, world.app.outbox, world.app.actors, "w#1")
        assert slot.run(world.app.actors["child"], *arguments(message)) is Result.BLOCKED
    assert world.process(process_id).state == "running"
