"""The database is away for a while: no error of the actor's, and nothing that was done is thrown away."""

from __future__ import annotations

import itertools
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from pymongo.errors import AutoReconnect, NetworkTimeout, NotPrimaryError, ServerSelectionTimeoutError

from recovery import Backoff, heartbeat
from recovery.engine import Result, Slot, outages
from recovery.engine.outages import breaker, through_outage
from recovery.errors import StoreRefused, StoreUnavailable
from recovery.metrics import BREAKER_CHANGES
from recovery.records import DecisionState
from recovery.store.driver_errors import ours
from recovery.store.lifecycle.decisions import Decisions
from recovery.store.lifecycle.graphs import Graphs
from tests.faults import threads_held
from tests.store import single
from tests.store.writing import get
from tests.waiting import wait_until
from tests.world import World, arguments

LATER = Backoff(initial=60, jitter=(0, 0))


@pytest.fixture(autouse=True)
def breakers() -> None:
    """None is open since the test before."""
    outages._breaker.cache_clear()


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
    assert world.bring_to_end(world.start(order)).result == '"done"'


@pytest.mark.parametrize("after", [False, True])
def test_a_result_is_kept_until_it_can_be_written(world: World, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    calls: list[int] = []

    def order() -> str:
        calls.append(1)
        return "done"

    process_id = world.start(world.app.process()(order))
    monkeypatch.setattr(Decisions, "finish", away(2, Decisions.finish, after=after))
    world.pump()
    assert world.process(process_id).result == '"done"'
    assert len(calls) == 1


@pytest.mark.parametrize("error", [None, ConnectionResetError(104, "reset"), ConnectionRefusedError(111, "away")])
def test_what_is_not_idempotent_is_not_done_again_since_its_end_can_not_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    calls: list[int] = []

    def order() -> str:
        calls.append(1)
        if error is not None:
            raise error
        return "done"

    process_id = world.start(world.app.process("order", idempotent=False, worker_timeout=0.3)(order))
    with monkeypatch.context() as outage:
        for write in ("finish", "retry_later"):
            outage.setattr(Decisions, write, away(10**6, Decisions.finish))
        with pytest.raises(StoreUnavailable):
            world.pump()
    process = world.bring_to_end(process_id)
    assert len(calls) == 1
    assert process.error is not None
    assert process.error.kind == "WorkTimeout"


def test_a_failure_whose_write_was_not_answered_is_written_again_and_counted_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write took place. The second finds what the first wrote."""
    calls: list[int] = []

    def order() -> None:
        calls.append(1)
        raise ConnectionRefusedError(111, "away")

    process_id = world.start(world.app.process("order", retry=LATER)(order))
    monkeypatch.setattr(Decisions, "retry_later", away(1, Decisions.retry_later, after=True))
    world.pump()
    held = get(world.store, f"{process_id}/start")
    assert (held.state, held.attempts, len(calls)) == (DecisionState.DELAYED, 1, 1)
    assert held.retry is not None and held.retry.count == 1


def test_a_failure_whose_write_hung_past_the_time_of_the_attempt_is_written_by_a_last_try(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    writes: list[float] = []
    real = Decisions.retry_later

    def order() -> None:
        calls.append(1)
        raise ConnectionRefusedError(111, "away")

    def hangs_once(*args: Any) -> bool:
        writes.append(time.monotonic())
        if len(writes) == 1:
            wait_until(lambda: time.monotonic() > writes[0] + 0.3, 5, "the end of the attempt's time")
            raise StoreUnavailable("away")
        return real(*args)

    process_id = world.start(world.app.process("order", retry=LATER, worker_timeout=0.2)(order))
    monkeypatch.setattr(Decisions, "retry_later", hangs_once)
    world.pump()
    held = get(world.store, f"{process_id}/start")
    assert (held.state, held.attempts, len(calls), len(writes)) == (DecisionState.DELAYED, 1, 1, 2)


def test_what_was_claimed_and_can_not_be_run_is_given_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next step is claimed on the spot, and then its predecessor can't be applied: nobody runs it."""

    @world.app.actor(worker_timeout=600)
    def step(number: int) -> int:
        return number + 1

    @world.app.process()
    def order() -> Any:
        return step.schedule(1)

    process_id = world.start(order)
    monkeypatch.setattr("recovery.engine.apply.apply.enqueue", away(1, lambda *_: 0))
    with pytest.raises(StoreUnavailable):
        world.pump()
    (child,) = [d for d in world.decisions(process_id).values() if d.actor == "step"]
    assert (child.state, child.timeouts) == (DecisionState.QUEUED, 0)
    assert world.bring_to_end(process_id).result == "2"


@pytest.mark.parametrize("after", [False, True])
def test_a_claim_whose_reply_is_lost_is_given_back(world: World, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    """Its message is used up, whether it was claimed or not."""
    process_id = world.start(world.app.process("order", worker_timeout=600)(lambda: "done"))
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

    process_id = world.start(order)
    lost, real, claims = away(1, Decisions.claim_ready, after=after), Decisions.claim_ready, itertools.count()

    def second_is_lost(*args: Any, **options: Any) -> Any:
        return (lost if next(claims) == 1 else real)(*args, **options)

    monkeypatch.setattr(Decisions, "claim_ready", second_is_lost)
    with pytest.raises(StoreUnavailable):
        world.pump()
    world.pump()  # no scan: what was claimed, and its reply lost, has a message again
    assert world.process(process_id).result == "4"
    assert calls == [1, 2, 3], "each once"


@pytest.mark.parametrize("other", ["elsewhere#1", "w#1#8"])
def test_the_same_message_twice_takes_no_claim_from_another(
    world: World, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """Who got it second could not ask: the claim is another worker's, or another thread's, and is left alone."""
    order = world.app.process("order", worker_timeout=600)(lambda: "done")
    key = f"{world.start(order)}/start"
    pass_key = get(world.store, key).pass_key
    assert pass_key is not None
    single.claim(world.store, "order", key, pass_key, other, 600)
    monkeypatch.setattr(Decisions, "claim", away(1, Decisions.claim))
    with pytest.raises(StoreUnavailable):
        world.pump("w#1")
    held = get(world.store, key)
    assert (held.state, held.pass_key, held.worker) == (DecisionState.WORKING, pass_key, other)


def test_an_apply_that_failed_is_done_again(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing becomes ready by it, so the outbox's thread does it, beside the slot."""

    @world.app.process()
    def order() -> str:
        return "done"

    process_id = world.start(order)
    monkeypatch.setattr(Graphs, "apply", away(1, Graphs.apply))
    world.tell()
    message = world.pop(["order"])
    assert message is not None
    slot = Slot(world.app.resources, world.app.outbox, world.app.actors, "w#1")
    assert slot.run(order, *arguments(message)) is Result.FINISHED
    wait_until(
        lambda: "could not apply finished tasks (away); they are applied again" in caplog.text,
        10,
        "the attempt to apply it",
    )
    assert world.bring_to_end(process_id).result == '"done"'


def test_an_apply_that_raises_anything_does_not_end_the_appliers_thread(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @world.app.process()
    def order() -> str:
        return "done"

    def fails(*_: Any) -> Any:
        raise RuntimeError("no words")

    world.tell()
    slot = Slot(world.app.resources, world.app.outbox, world.app.actors, "w#1")
    first, second = world.start(order), world.start(order)
    with monkeypatch.context() as failing:
        failing.setattr(Graphs, "apply", fails)
        message = world.pop(["order"])
        assert message is not None and slot.run(order, *arguments(message)) is Result.FINISHED
        wait_until(lambda: "RuntimeError: no words" in caplog.text, 10, "the attempt to apply it")
    message = world.pop(["order"])
    assert message is not None and slot.run(order, *arguments(message)) is Result.FINISHED
    wait_until(lambda: world.process(second).state == "finished", 10, "the apply of the next one")
    assert world.bring_to_end(first).result == '"done"'


def test_a_flush_that_can_not_apply_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    @world.app.process()
    def order() -> str:
        return "done"

    process_id = world.start(order)
    monkeypatch.setattr(Graphs, "apply", away(1, Graphs.apply))
    with threads_held(), pytest.raises(StoreUnavailable):
        world.pump()
    assert world.bring_to_end(process_id).result == '"done"'


def test_an_outage_is_logged_once_for_all_calls(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """By the breaker. What becomes of each call is for those who look closer."""
    caplog.set_level(logging.DEBUG, "recovery.retry")
    resources = world.app.resources
    assert through_outage(resources, away(0, lambda: 1), 10, "a step") == 1
    assert caplog.messages == []
    assert through_outage(resources, away(3, lambda: 2), 10, "a step") == 2
    opened, closed = (record for record in caplog.records if record.levelno > logging.DEBUG)
    first, *_, done = (record for record in caplog.records if record.getMessage().startswith("a step: "))
    assert first.getMessage().startswith("a step: retry 1 in 0.")
    assert first.getMessage().endswith("(NODE_NOT_AVAILABLE, 20002): away")
    fields = vars(first)
    assert (fields["retry_reason"], fields["retry_code"], fields["retry_attempt"]) == ("NODE_NOT_AVAILABLE", 20002, 1)
    assert 0.05 <= fields["retry_delay"] <= 0.1
    assert "circuit breaker open for 0.1 s" in opened.getMessage()
    assert re.search(r"circuit breaker closed after \d+\.\d s: it answers", closed.getMessage())
    assert re.fullmatch(r"a step: done after \d+\.\d s, retries: \d+", done.getMessage())


def test_patience_has_an_end(world: World) -> None:
    tries: list[float] = []

    def step() -> None:
        tries.append(time.monotonic())
        raise StoreUnavailable("away")

    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="away"):
        through_outage(world.app.resources, step, 0.3, "a step")
    assert tries[-1] >= began + 0.3, "the last began once the time was over"
    assert all(tried < began + 0.3 for tried in tries[:-1])


def test_a_try_that_hung_until_the_end_of_patience_is_not_the_last(world: World) -> None:
    """It tells how the database was when it began."""
    tries: list[float] = []

    def hangs_once() -> str:
        tries.append(time.monotonic())
        if len(tries) == 1:
            wait_until(lambda: time.monotonic() > tries[0] + 0.2, 5, "the end of patience")
            raise StoreUnavailable("away")
        return "done"

    assert through_outage(world.app.resources, hangs_once, 0.1, "a step") == "done"


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (AutoReconnect("connection closed"), "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
        (NetworkTimeout("timed out"), "TIMEOUT_IN_FLIGHT"),
        (NotPrimaryError("not primary"), "NOT_PRIMARY"),
        (ServerSelectionTimeoutError("no primary"), "NODE_NOT_AVAILABLE"),
    ],
)
def test_what_nobody_knows_to_have_been_done_is_sent_again(
    world: World, caplog: pytest.LogCaptureFixture, cause: Exception, reason: str
) -> None:
    """By the driver's error that ours was raised from."""
    left = [cause]

    def step() -> str:
        if left:
            raise ours(cause) from left.pop()
        return "done"

    caplog.set_level(logging.DEBUG, "recovery.retry")
    assert through_outage(world.app.resources, step, 10, "a step") == "done"
    first = next(record for record in caplog.records if hasattr(record, "retry_reason"))
    assert first.retry_reason == reason


def test_the_last_try_is_sent_though_the_breaker_is_open(world: World) -> None:
    """Another step is the trial, and hangs; the work of this one is not thrown away."""
    resources, ended = world.app.resources, threading.Event()

    def hangs() -> None:
        trials.append(1)
        if len(trials) == 2:
            assert ended.wait(30)
        raise StoreUnavailable("away")

    trials: list[int] = []

    def try_another() -> None:
        with suppress(StoreUnavailable):
            through_outage(resources, hangs, 1, "another")

    other = threading.Thread(target=try_another)
    other.start()
    wait_until(lambda: len(trials) == 2, 10, "its trial")
    sent: list[float] = []
    began = time.monotonic()
    through_outage(resources, lambda: sent.append(time.monotonic() - began), 0.4, "a step")
    assert len(sent) == 1 and sent[0] >= 0.4
    ended.set()
    other.join(20)


def test_what_is_refused_is_raised_at_once_and_opens_nothing(world: World) -> None:
    sent: list[int] = []

    def step() -> None:
        sent.append(1)
        raise StoreRefused("no")

    with pytest.raises(StoreRefused):
        through_outage(world.app.resources, step, 10, "a step")
    assert sent == [1]
    assert breaker(world.app.settings.mongo_uri).state == "closed"


def test_openings_and_closings_are_counted(world: World) -> None:
    def counted() -> list[float]:
        return [BREAKER_CHANGES.labels("mongodb", state)._value.get() for state in ("open", "closed")]

    before = counted()
    through_outage(world.app.resources, away(2, lambda: 1), 10, "a step")
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 1]


def test_a_breaker_is_one_of_a_process_and_of_a_server(world: World) -> None:
    uri = world.app.settings.mongo_uri
    ours = breaker(uri)
    assert breaker(uri) is ours is not breaker("mongodb://other")
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, str(breaker(uri) is ours).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"False"
