"""Tasks that are delayed, or whose turn comes after others', wait for nobody as well if nobody serves their actor: all
who tell what waits say so at once, and their actor is not forgotten."""

from __future__ import annotations

import json

import pytest

from recovery import Promise, Recovery, Settings
from recovery.cli import start_commands
from recovery.errors import ResultTimeout
from recovery.health.untaken_tasks import actors as doctors_actors
from recovery.metrics.collectors import ServerCollector
from recovery.records import ErrorInfo
from tests.cli.test_waiting import done, refused, serve
from tests.world import World

LONELY = "no worker serves {}"


@pytest.fixture
def world(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> World:
    for name, value in {**emptied.environment(), "COLUMNS": "300"}.items():
        monkeypatch.setenv(name, value)
    return World(emptied, Recovery(emptied))


@pytest.fixture
def later(world: World) -> str:
    """A process of which a task is delayed, of an actor that the workers do not know."""

    @world.app.process()
    def later(count: int) -> list[Promise]:
        return [price_list.options(delay=600).schedule(number) for number in range(count)]

    world.tell()

    @world.app.actor()
    def price_list(number: int) -> int:
        return number

    return begun(world, "later", 2)


@pytest.fixture
def ordered(world: World) -> str:
    """A process of which `pack` is queued, which is blocked, and `ship` comes after it, which nobody serves."""

    @world.app.actor()
    def pack(item: str) -> str:
        return item

    @world.app.actor()
    def ship(item: str) -> str:
        return item

    @world.app.process()
    def order(item: str) -> list[Promise]:
        return [ship.schedule(pack.schedule(item)), ship.schedule(pack.schedule(item))]

    world.tell()
    done("actor", "block", "pack")
    return begun(world, "order", "h", serves=("pack",))


def begun(world: World, name: str, argument: object, serves: tuple[str, ...] = ()) -> str:
    """A process whose start task was done by a worker that serves it, and these."""
    started = world.start(name, argument)
    world.store.actors.save(actor.preferences for actor in world.app.actors.values() if actor.name == name)
    known = dict(world.app.actors)
    world.tell = lambda: None  # type: ignore[method-assign]
    serve(world.store, name, *serves)
    world.pump(serve={name: known[name]})
    world.store.catch_up(10)
    return started


def found(process_id: str) -> list[tuple[str, str]]:
    """What `check` finds."""
    told = json.loads(done("check", process_id, "--json", code=1))["findings"]
    return [(one["rule"], one["evidence"]) for one in told]


def unserved(world: World) -> dict[str, float]:
    """The metric, by actor."""
    asked = ServerCollector(world.store, world.app.resources.broker).collect()
    (metric,) = (one for one in asked if one.name == "recovery_queued_unserved")
    return {sample.labels["actor"]: sample.value for sample in metric.samples if sample.value}


def test_what_is_delayed(world: World, later: str) -> None:
    lonely = LONELY.format("price_list")
    ((rule, evidence),) = found(later)
    assert rule == "NO_ACTORS"
    assert evidence.startswith("2 tasks, each delayed until 20") and evidence.endswith(f", {lonely}")
    assert "healthy" not in done("check", later, code=1)
    assert done("show", later).count(lonely) == 2
    queue = json.loads(done("status", "--json"))["queues"]["price_list"]
    assert (queue["tasks"], queue["delayed"], queue["problem"]) == (0, 2, lonely)
    assert "2 delayed" in done("status") and lonely in done("status")
    assert unserved(world) == {"price_list": 2}
    check = doctors_actors(world.app.resources)
    assert check.level == "PROBLEM" and "no worker serves price_list (2 delayed)" in check.found
    assert "no task waits" not in check.found and "recovery actor forget" not in check.advice
    world.store.actors.save([world.app.actors["price_list"].preferences])
    assert "(2 delayed)" in refused("actor", "forget", "price_list")
    serve(world.store, "later", "price_list")
    assert "healthy" in done("check", later) and unserved(world) == {}
    assert lonely not in done("status") + done("show", later)


def test_what_comes_after_others(world: World, ordered: str) -> None:
    """Of an actor that is known, has settings of an operator's, and is not to be forgotten with them."""
    done("actor", "set", "ship", "worker_timeout=777")
    lonely = LONELY.format("ship")
    assert ("NO_ACTORS", f"2 tasks, each to be queued after other tasks, {lonely}") in found(ordered)
    assert done("show", ordered).count(lonely) == 2
    assert json.loads(done("status", "--json"))["queues"]["ship"]["after_others"] == 2
    assert unserved(world) == {"ship": 2}
    check = doctors_actors(world.app.resources)
    assert "no worker serves ship (2 after other tasks)" in check.found and "no task waits" not in check.found
    assert "recovery actor forget" not in check.advice
    assert "(2 waiting)" in refused("actor", "forget", "ship")
    assert world.store.actors.all()["ship"].worker_timeout == 777
    assert done("broken", "abort", "--waiting-for", "ship", "--yes") == "1 process aborted\n"
    check = doctors_actors(world.app.resources)
    assert "no worker serves ship, and no task waits" in check.found and "recovery actor forget ship" in check.advice
    done("actor", "forget", "ship")


@pytest.mark.usefixtures("ordered")
def test_of_an_actor_that_nobody_ever_told_of(world: World) -> None:
    world.store.database["actors"].delete_one({"_id": "ship"})
    assert "no worker serves ship (2 after other tasks)" in doctors_actors(world.app.resources).found
    assert LONELY.format("ship") in done("status")


def test_what_comes_after_others_in_a_broken_process(world: World, ordered: str) -> None:
    """Its turn comes only if an operator restarts what failed: no alert, and nothing to forget either."""
    process = world.store.processes.get(ordered)
    assert process is not None
    world.store.processes.break_(ordered, process.epoch, ErrorInfo(kind="X", message=""), None)
    world.store.catch_up(10)
    assert unserved(world) == {}
    check = doctors_actors(world.app.resources)
    assert "no worker serves ship (2 of processes that are broken)" in check.found and check.level == "WARNING"
    assert "recovery actor forget" not in check.advice and "no task waits" not in check.found
    assert not any("ship" in evidence for _, evidence in found(ordered))
    assert "(2 waiting)" in refused("actor", "forget", "ship")
    assert done("broken", "abort", "--waiting-for", "ship", "--yes") == "1 process aborted\n"


def test_start_tells_of_what_is_to_come(
    world: World, later: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start_commands, "LOOK_EVERY", 0.1)
    with pytest.raises(ResultTimeout):
        start_commands.await_result(world.app, later, 2.0)
    waits, beat = capsys.readouterr().err.splitlines()
    assert waits == f"{later} waits: {LONELY.format('price_list')}"
    assert beat.startswith("no beat nudges: ")
