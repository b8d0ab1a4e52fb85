"""A place that attempts run in: what it takes, what it passes on, and what it drops as stale."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest

from recovery import Recovery, heartbeat
from recovery.engine import Host, Result, Slot
from recovery.engine.run import batch
from recovery.engine.run import slot as slots
from recovery.errors import NotInActor
from recovery.records import Decision, DecisionState, ProcessState
from recovery.records.ids import new_pass
from tests.clock import Clock
from tests.store.writing import contents, is_close
from tests.waiting import wait_until
from tests.world import World, arguments, check_quiet

DAY = timedelta(days=1)


def slot(world: World, holder: str = "w#1") -> Slot:
    return Slot(world.app.resources, world.app.outbox, world.app.actors, holder)


def start(world: World, function: Callable[..., Any], **settings: Any) -> tuple[str, list[str]]:
    """Start a process; its start task's decision, and what its message brings."""
    process_id = world.start(world.app.process("order", **settings)(function))
    message = world.pop(["order"])
    assert message is not None
    return f"{process_id}/start", arguments(message)


def run(world: World, message: list[str]) -> Result:
    result = slot(world).run(world.app.actors["order"], *message)
    world.app.outbox.flush()
    return result


def requeue(world: World, decision_id: str) -> None:
    """What a scanner does to an attempt whose deadline is past."""
    past = world.store.now() - DAY
    world.store.database["decisions"].update_one({"_id": decision_id}, {"$set": {"recoveryTime": past}})
    assert world.store.requeues.timed_out([decision_id], new_pass())


def test_a_ready_task_of_an_actor_that_is_not_served_here_is_enqueued(world: World) -> None:
    ran: list[str] = []
    elsewhere = world.app.actor("elsewhere")(lambda: ran.append("elsewhere"))
    here = world.app.actor("here")(lambda: ran.append("here"))

    @world.app.process()
    def order() -> Any:
        return [elsewhere.schedule(), here.schedule(), elsewhere.schedule()]

    process_id = world.start(order)
    world.pump(serve={name: world.app.actors[name] for name in ("order", "here")})
    assert ran == ["here"]
    assert world.redis.llen("elsewhere") == 2
    states = [d.state for d in world.decisions(process_id).values() if d.actor == "elsewhere"]
    assert states == [DecisionState.QUEUED] * 2
    world.pump()
    assert world.app.result(process_id, timeout=0) == [None] * 3


class Timed(Clock):
    """The time that `batch` sees; a task's time passes when it says so."""

    perf_counter = staticmethod(time.perf_counter)


def test_ready_tasks_are_run_on_the_spot_for_a_while_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Timed()
    for module in (batch, slots):
        monkeypatch.setattr(module, "time", clock)

    @world.app.actor()
    def step(left: int) -> Any:
        clock.now += slots.GO_ON_FOR / 4
        return step.schedule(left - 1) if left else "done"

    process = world.app.process("steps")(step.schedule)
    process_id = world.start(process, 11)
    # The start takes no time and four steps follow it; a message's step is followed by three.
    assert world.pump() == 1 + 2
    assert world.app.result(process_id, timeout=0) == "done"


def test_a_stale_message_is_dropped(world: World) -> None:
    key, message = start(world, lambda: "done")
    requeue_unclaimed = world.store.requeues.requeue_message_lost([key], world.store.now(), new_pass())
    assert run(world, message) is Result.STALE_MESSAGE
    decision = world.store.decisions.get(key)
    assert decision is not None
    assert (decision.state, decision.attempts) == (DecisionState.QUEUED, 0)
    world.app.resources.broker.push(requeue_unclaimed)
    world.pump()
    assert run(world, message) is Result.STALE_MESSAGE


@pytest.mark.parametrize(
    ("accept_first", "fails", "expected"),
    [
        (True, False, Result.FINISHED),
        (True, True, Result.STALE_RESULT),
        (False, False, Result.STALE_RESULT),
        (False, True, Result.STALE_RESULT),
    ],
)
def test_a_result_after_another_pass_began(world: World, accept_first: bool, fails: bool, expected: Result) -> None:
    """A value may be the first that comes; an error counts only from who holds the task."""
    keys: list[str] = []

    def slow() -> str:
        requeue(world, keys[0])
        if fails:
            raise ValueError("too late to matter")
        return "first"

    key, message = start(world, slow, accept_first=accept_first)
    keys.append(key)
    assert run(world, message) is expected
    decision = world.store.decisions.get(key)
    assert decision is not None
    assert (decision.state is DecisionState.FINISHED) == (expected is Result.FINISHED)


def test_heartbeat_moves_the_deadline(world: World) -> None:
    keys: list[str] = []

    def beats() -> Any:
        world.store.database["decisions"].update_one({"_id": keys[0]}, {"$set": {"recoveryTime": world.store.now()}})
        heartbeat()
        found = world.store.decisions.get(keys[0])
        assert found is not None
        assert is_close(found.recovery_time, world.store.now() + timedelta(seconds=500))
        return "alive"

    key, message = start(world, beats, worker_timeout=500)
    keys.append(key)
    assert run(world, message) is Result.FINISHED


def test_heartbeat_tells_an_attempt_that_it_lost_its_task(world: World) -> None:
    keys: list[str] = []

    def beats() -> None:
        requeue(world, keys[0])
        heartbeat()
        raise AssertionError("not reached")

    key, message = start(world, beats)
    keys.append(key)
    assert run(world, message) is Result.CLAIM_LOST
    decision = world.store.decisions.get(key)
    assert decision is not None
    assert decision.state is DecisionState.QUEUED


def test_heartbeat_outside_an_actor() -> None:
    with pytest.raises(NotInActor, match=r"heartbeat\(\) was called outside a running actor"):
        heartbeat()


def test_automatic_heartbeats_keep_a_long_attempt(world: World) -> None:
    """Its deadline moves while the function runs: what the test waits for, the thread beside it does."""
    keys: list[str] = []

    def long() -> bool:
        def deadline() -> Any:
            found = world.store.decisions.get(keys[0])
            assert found is not None
            return found.recovery_time

        first = deadline()
        return bool(wait_until(lambda: deadline() > first, 10, "a heartbeat"))

    key, message = start(world, long, worker_timeout=0.6, auto_heartbeat=True)
    keys.append(key)
    assert run(world, message) is Result.FINISHED


def test_arguments_too_large_to_be_copied_come_from_the_task(world: World) -> None:
    length = world.app.actor("length")(len)
    text = "x" * 5000

    @world.app.process()
    def order() -> Any:
        return length.schedule(text)

    process_id = world.start(order)
    world.pump()
    (decision,) = world.store.database["decisions"].find({"actor": "length"})
    assert "call" not in decision
    assert world.app.result(process_id, timeout=0) == 5000
    check_quiet(world, process_id)


def test_a_task_without_its_record_waits_until_that_is_made_again(world: World) -> None:
    large = world.app.actor("large")(lambda text: len(text))
    process_id = world.start(world.app.process("order")(lambda: large.schedule("x" * 5000)))
    world.pump(serve={"order": world.app.actors["order"]})
    world.store.database["tasks"].delete_one({"actor": "large"})
    message = world.pop(["large"])
    assert message is not None
    assert slot(world).run(world.app.actors["large"], *arguments(message)) is Result.NOT_READY
    assert world.bring_to_end(process_id).result == "5000"
    (decision,) = (d for d in world.decisions(process_id).values() if d.actor == "large")
    assert decision.timeouts == 0
    check_quiet(world, process_id)


def test_the_attempt_is_of_the_thread_that_runs_it(world: World) -> None:
    """A thread that the actor starts is outside it: its children could come after the result."""
    from threading import Thread

    step = world.app.actor("step")(lambda: None)
    told: list[str] = []

    def other_thread() -> None:
        try:
            step.schedule()
        except NotInActor as error:
            told.append(str(error))

    def threaded() -> str:
        thread = Thread(target=other_thread)
        thread.start()
        thread.join()
        return "done"

    _, message = start(world, threaded)
    assert run(world, message) is Result.FINISHED
    assert len(told) == 1
    assert "in the thread that runs them" in told[0]


def test_an_application_may_be_made_before_a_fork(app: Recovery) -> None:
    """A child process makes its own connections."""
    import os

    before = app.resources
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, b"own" if app.resources is not before else b"its parent's")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 20) == b"own"
    assert app.resources is before


@pytest.mark.parametrize("gone", [False, True], ids=["undecided", "gone"])
def test_a_task_whose_value_was_lost_waits_until_its_graph_is_looked_at(world: World, gone: bool) -> None:
    """A decision of an older backup, or none: the graph has it as finished, and what waits for it is begun."""
    pack = world.app.actor("pack")(lambda: "packed")
    ship = world.app.actor("ship")(lambda what: f"{what} and shipped")
    process_id = world.start(world.app.process("order", idle_timeout=3600)(lambda: ship.schedule(pack.schedule())))
    for actor in ("order", "pack"):
        world.pump(serve={actor: world.app.actors[actor]})
    (packed,) = (d for d in world.decisions(process_id).values() if d.actor == "pack")
    decisions = world.store.database["decisions"]
    if gone:
        decisions.delete_one({"_id": packed.id})
    else:
        past = world.store.now() - timedelta(hours=1)
        lost = {"$set": {"state": "working", "worker": "w#1", "recoveryTime": past}, "$unset": {"outcome": 1}}
        decisions.update_one({"_id": packed.id}, lost)
    message = world.pop(["ship"])
    assert message is not None
    assert slot(world).run(world.app.actors["ship"], *arguments(message)) is Result.NOT_READY
    (waiting,) = (d for d in world.decisions(process_id).values() if d.actor == "ship")
    assert (waiting.state, waiting.worker, waiting.recovery_time) == (DecisionState.WAITING, None, None)
    graph = world.store.graphs.get(process_id)
    assert graph is not None and graph.recovery_time is not None
    assert (graph.recovery_time - world.store.now()).total_seconds() < 60, "and not in an hour"
    process = world.bring_to_end(process_id)
    assert process.result == '"packed and shipped"', process.error
    (shipped,) = (d for d in world.decisions(process_id).values() if d.actor == "ship")
    assert shipped.timeouts == 0
    check_quiet(world, process_id)


def test_a_value_that_never_comes_breaks_the_process(world: World) -> None:
    """Its task failed, and another program's graph says that it was applied: no rule can mend that."""
    pack = world.app.actor("pack")(lambda: "packed")
    ship = world.app.actor("ship", max_work_timeouts=3)(lambda what: what)
    process_id = world.start(world.app.process("order")(lambda: ship.schedule(pack.schedule())))
    for actor in ("order", "pack"):
        world.pump(serve={actor: world.app.actors[actor]})
    failed = {"outcome.error": {"kind": "ValueError", "message": "another's"}}
    world.store.database["decisions"].update_one({"actor": "pack"}, {"$set": failed, "$unset": {"outcome.value": 1}})
    process = world.bring_to_end(process_id)
    assert process.state is ProcessState.BROKEN
    assert process.error is not None and "has no value yet" in process.error.message
    shipped = world.store.database["decisions"].find_one({"actor": "ship"})
    assert shipped is not None and shipped["attempts"] == 3


ANY: Any = {"$gt": ""}


@pytest.mark.parametrize("first", [ANY, None, 5, "", "p/t"])
@pytest.mark.parametrize("second", [ANY, None, "mine"])
def test_a_message_that_asks_for_any_task_gets_none(world: World, first: Any, second: Any) -> None:
    _, message = start(world, lambda: "order")
    before = contents(world.store, "decisions")
    assert slot(world).run(world.app.actors["order"], first, second) is Result.STALE_MESSAGE
    assert slot(world).run(world.app.actors["order"], message[0], second) is Result.STALE_MESSAGE
    assert contents(world.store, "decisions") == before


def test_a_message_in_another_actors_queue_runs_nothing(world: World) -> None:
    """Its id and pass are right: only the queue is not its actor's, which may be blocked."""
    ran: list[str] = []
    world.app.actor("other")(lambda: ran.append("other"))
    _, message = start(world, lambda: ran.append("order"))
    assert slot(world).run(world.app.actors["other"], *message) is Result.STALE_MESSAGE
    assert ran == []
    assert slot(world).run(world.app.actors["order"], *message) is Result.FINISHED


class Noting(Host):
    """Cannot run anything while it is `sick`, and notes what it is told."""

    def __init__(self) -> None:
        self.sick, self.done = True, 0
        self.not_done: list[tuple[str, bool]] = []
        """Decisions, and whether they may be given back."""

    def running(self, decision: Decision, timeout: float) -> AbstractContextManager[object]:
        if self.sick:
            raise FileNotFoundError(2, "no folder")
        return super().running(decision, timeout)

    def was_done(self) -> None:
        self.done += 1

    def was_not_done(self, decision_id: str, pass_key: str | None, error: Exception) -> None:  # noqa: ARG002
        self.not_done.append((decision_id, pass_key is not None))


def test_what_a_slot_can_not_run_is_noted_and_given_back_uncounted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it was claimed too often: it may be to blame itself, and has to end."""
    monkeypatch.setattr("recovery.engine.run.trying.MAX_UNCOUNTED", 1)
    decision_id, (_, pass_key) = start(world, lambda: 1)
    host = Noting()
    place = Slot(world.app.resources, world.app.outbox, world.app.actors, "w#1", host)
    for number in (1, 2):
        assert place.run(world.app.actors["order"], decision_id, pass_key) is Result.CLAIM_LOST
        assert (host.done, host.not_done) == (0, [(decision_id, True), (decision_id, False)][:number])
        place.give_back_unrun({decision_id: pass_key}, FileNotFoundError())
        decision = world.store.decisions.get(decision_id)
        assert decision is not None
        assert (decision.state, decision.timeouts, decision.attempts) == (DecisionState.QUEUED, 0, number)
        assert decision.pass_key is not None and world.pop(["order"]) is None, (
            "it gets no message: it would come at once"
        )
        pass_key = decision.pass_key
    host.sick = False
    assert place.run(world.app.actors["order"], decision_id, pass_key) is Result.FINISHED and host.done == 1
