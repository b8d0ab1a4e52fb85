"""Which spans there are, and under which: whoever runs what, and whatever comes between."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import patch

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler

from recovery import Backoff
from recovery.engine.apply import outbox as applying
from recovery.engine.operators.redo import redo_process
from recovery.records.ids import START_TASK
from recovery.repair import Repairer
from recovery.scan import DecisionScanner, rescue
from recovery.store import schema
from tests.store import single
from tests.tracing.conftest import Traces
from tests.tracing.exported import check_times, tree
from tests.waiting import wait_until
from tests.world import World, arguments, by_message_only


@pytest.fixture
def shop(world: World) -> World:
    """An order has two packs, the second of which waits for the first."""
    pack = world.app.actor("pack")(lambda item, _before=None: item)
    world.app.process("order")(lambda: pack.schedule("two", pack.schedule("one")))
    return world


def take_later(world: World, *queues: str) -> None:
    """Take a message of each of these queues, after some milliseconds: MongoDB's times have no less."""
    with by_message_only():
        for queue in queues:
            until = time.monotonic() + 0.005
            wait_until(lambda until=until: time.monotonic() > until, 1, "some milliseconds")
            world.take_one(queue)


def test_a_process_is_one_trace(shop: World, traces: Traces) -> None:
    process_id = shop.start("order")
    take_later(shop, "order", "pack", "pack")
    assert shop.app.result(process_id, timeout=0) == "two"
    assert tree(traces.all()) == {
        "": ["start order"],
        "start order": ["attempt order", "queue order"],
        "attempt order": ["apply order", "attempt pack", "attempt pack #2", "queue pack", "queue pack #2"],
        "attempt pack": ["apply pack"],
        "attempt pack #2": ["apply pack #2"],
    }
    assert len({one.trace for one in traces.all()}) == 1
    check_times(traces.all())
    assert {one.said("process.id") for one in traces.all()} == {process_id}
    assert {one.said("process.type") for one in traces.all()} == {"order"}
    first, second = traces.named("attempt pack")
    assert first.end <= second.start
    assert (first.kind, first.said("actor"), first.said("attempt"), first.said("outcome")) == (
        *("CONSUMER", "pack", 1, "finished"),
    )
    assert first.status == "UNSET" and traces.named("start order")[0].kind == "PRODUCER"
    assert traces.named("apply pack")[-1].events == ["process finished"]


def test_what_is_run_on_the_spot_was_in_no_queue(shop: World, traces: Traces) -> None:
    assert shop.run(shop.app.actors["order"]) == "two"
    found = tree(traces.all())
    assert "attempt order" in found["start order"]
    assert [name for name in found["attempt order"] if not name.startswith("apply")] == [
        *("attempt pack", "attempt pack #2"),
    ]
    assert len({one.trace for one in traces.all()}) == 1


def test_each_try_is_a_span(world: World, traces: Traces) -> None:
    tries: list[int] = []

    @world.app.process("order", retry=Backoff(initial=1, jitter=(0, 0), maximum=1))
    def order() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("marked: not for everybody")
        return "done"

    assert world.run(order) == "done"
    attempts = traces.named("attempt order")
    assert [(one.said("attempt"), one.said("outcome"), one.status) for one in attempts] == [
        *((1, "retried", "ERROR"), (2, "retried", "ERROR"), (3, "finished", "UNSET")),
    ]
    assert attempts[0].attributes["error.type"] == "ConnectionError"
    assert tree(traces.all())["start order"].count("attempt order") == 1 and len({one.trace for one in attempts}) == 1
    assert len(traces.named("queue order")) >= 2, "and once more for the first, unless that took no millisecond"
    check_times(traces.all())
    assert "marked" not in str(traces.all()), "what an error says is not told"


def test_it_is_under_the_span_of_who_starts_it(shop: World, traces: Traces) -> None:
    with trace.get_tracer_provider().get_tracer("web").start_as_current_span("GET /order") as span:
        shop.start("order")
    shop.pump()
    assert {one.trace for one in traces.all()} == {f"{span.get_span_context().trace_id:032x}"}
    assert tree(traces.all())["GET /order"] == ["start order"]


def test_what_an_actor_does_is_under_its_attempt(world: World, traces: Traces) -> None:
    world.app.process("other")(lambda: None)

    @world.app.process("order")
    def order() -> None:
        with trace.get_tracer_provider().get_tracer("mine").start_as_current_span("weigh"):
            world.start("other")

    world.run(order)
    found = tree(traces.all())
    assert "weigh" in found["attempt order"] and found["weigh"] == ["start other"]


def test_of_what_is_not_sampled_nothing_is_but_that(shop: World) -> None:
    off = Traces(sampler=ParentBased(ALWAYS_OFF))
    with off.on():
        process_id = shop.start("order")
    on = Traces()  # samples all that comes under nobody
    with on.on():
        shop.bring_to_end(process_id)
    assert on.all() == off.all() == []
    database = shop.store.database
    kept = [database[schema.PROCESSES].find_one({}), *database[schema.DECISIONS].find()]
    said = {tuple((one or {})["trace"].items()) for one in kept}
    assert len(kept) == 4 and len(said) == 1
    ((name, parent),) = said.pop()
    assert name == "parent" and int(parent[-2:], 16) & 1 == 0, "no more than it takes"
    assert not [one for one in kept[1:] if one and "trace" in one["outcome"]]


def test_where_nobody_traces_nothing_is_written(shop: World) -> None:
    assert shop.run(shop.app.actors["order"]) == "two"
    for name in (schema.PROCESSES, schema.DECISIONS, schema.TASKS):
        for one in shop.store.database[name].find():
            assert "trace" not in one and "trace" not in one.get("outcome", {})


def test_workers_trace_what_was_started_without(shop: World, traces: Traces) -> None:
    with patch.object(trace, "get_tracer_provider", trace.NoOpTracerProvider):
        shop.start("order")
    with by_message_only():
        shop.pump()
    found = tree(traces.all())
    assert found[""] == ["attempt order"] and found["attempt order"].count("attempt pack") == 1
    assert len({one.trace for one in traces.all()}) == 1


def test_a_worker_that_does_not_trace_hands_it_on(shop: World, traces: Traces) -> None:
    process_id = shop.start("order")
    with patch.object(trace, "get_tracer_provider", trace.NoOpTracerProvider), by_message_only():
        shop.take_one("order")
    take_later(shop, "pack", "pack")
    assert shop.app.result(process_id, timeout=0) == "two"
    assert tree(traces.all())["start order"] == [*("attempt pack", "attempt pack #2", "queue pack", "queue pack #2")]


def test_an_attempt_that_was_lost_is_told_of_by_who_finds_that(shop: World, traces: Traces) -> None:
    shop.tell()
    process_id = shop.start("order")
    message = shop.pop(["order"])
    assert message is not None
    began = time.time_ns()
    assert single.claim(shop.store, "order", *arguments(message), "gone#1", 60.0)
    shop.store.decisions.note_lost("gone#1", "was ended by signal 9 (SIGKILL)")
    resources = shop.app.resources
    wait_until(lambda: rescue(resources, Repairer(resources, shop.app.outbox), ["gone#1"]), 10, "its requeue")
    shop.bring_to_end(process_id)
    lost, done = traces.named("attempt order")
    assert (lost.said("attempt"), lost.said("outcome"), lost.said("rule")) == (1, "lost", "WORKER_LOST")
    assert (lost.said("worker"), lost.said("lost")) == ("gone#1", "was ended by signal 9 (SIGKILL)")
    assert lost.status == "ERROR" and lost.events == ["requeued"]
    assert abs(lost.start - began) < 500_000_000 and lost.start < lost.end <= done.start + 1_000_000
    assert (done.said("attempt"), done.said("outcome")) == (2, "finished")
    assert {lost.parent, done.parent} == {traces.named("start order")[0].id}


def test_one_that_is_not_done_again_is_told_of_as_well(world: World, traces: Traces) -> None:
    world.app.process("order", idempotent=False)(lambda: None)
    world.tell()
    process_id = world.start("order")
    message = world.pop(["order"])
    assert message is not None and single.claim(world.store, "order", *arguments(message), "gone#1", 0.001)
    world.bring_to_end(process_id)
    (lost,) = traces.named("attempt order")
    assert (lost.said("outcome"), lost.said("rule"), lost.events) == ("lost", "WORK_TIMEOUT", ["ended"])
    (applied,) = traces.named("apply order")
    assert applied.events == ["process broken"] and applied.trace == lost.trace


def test_a_message_that_was_lost_is_told_of(shop: World, traces: Traces) -> None:
    process_id = shop.start("order")
    shop.redis.flushdb()
    shop.pump()  # its queue is polled, and empty
    shop.bring_to_end(process_id)
    requeue = traces.named("requeue order")[0]
    assert requeue.said("rule") == "MESSAGE_LOST" and requeue.parent == traces.named("start order")[0].id


def test_what_others_apply_is_under_the_attempt(shop: World, traces: Traces) -> None:
    shop.tell()
    process_id = shop.start("order")
    with patch.object(applying.Outbox, "put", lambda *_: None):
        shop.take_one("order")
    assert traces.named("apply order") == []
    shop.bring_to_end(process_id)
    found = tree(traces.all())
    assert {"apply order", "attempt pack", "attempt pack #2"} <= set(found["attempt order"])


def test_what_is_applied_together_has_links(world: World, traces: Traces) -> None:
    pack = world.app.actor("pack")(lambda item, _before=None: item)

    @world.app.process("order")
    def order() -> Any:
        last = pack.schedule(0)
        for number in range(1, 4):
            last = pack.schedule(number, last)
        return last

    assert world.run(order) == 3
    (applied,) = (one for one in traces.named("apply pack") if one.said("applied") > 1)
    attempts = traces.named("attempt pack")
    assert {*applied.links, applied.parent} == {one.id for one in attempts}
    assert applied.said("applied") == len(attempts)


def test_a_restart_keeps_the_trace(world: World, traces: Traces) -> None:
    broken = [True]

    @world.app.process("order")
    def order() -> str:
        if broken:
            raise ValueError("no")
        return "done"

    process_id = world.start(order)
    world.bring_to_end(process_id)
    broken.clear()
    world.app.restart(process_id, reason="mended")
    world.bring_to_end(process_id)
    attempts = traces.named("attempt order")
    assert [(one.said("outcome"), one.said("restarts")) for one in attempts] == [("failed", None), ("finished", 1)]
    assert len({one.parent for one in attempts}) == 1 and len({one.trace for one in traces.all()}) == 1


def test_a_process_that_is_done_again_keeps_the_trace(shop: World, traces: Traces) -> None:
    shop.tell()
    process_id = shop.start("order")
    shop.bring_to_end(process_id)
    redo_process(shop.app.resources, process_id, "the data was wrong", [START_TASK])
    shop.bring_to_end(process_id)
    attempts = traces.named("attempt order")
    assert [(one.said("outcome"), one.said("epoch")) for one in attempts] == [("finished", None), ("finished", 1)]
    assert {one.parent for one in attempts} == {traces.named("start order")[0].id}
    assert len(traces.named("attempt pack")) == 4 and len({one.trace for one in traces.all()}) == 1


class Rude(SpanProcessor):
    """Somebody's own code."""

    def on_start(self, *_: Any, **__: Any) -> None:
        raise LookupError("no spans today")

    on_end = on_start


class Ruder(Sampler):
    def should_sample(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no samples today")

    def get_description(self) -> str:
        return "ruder"


@pytest.mark.parametrize("where", ["sampler", "processor"])
def test_what_somebodys_own_code_raises_stops_nothing(
    shop: World, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    rude = Traces(sampler=Ruder()) if where == "sampler" else Traces()
    if where == "processor":
        rude.provider.add_span_processor(Rude())
    with rude.on():
        assert shop.run(shop.app.actors["order"]) == "two"
    assert "a span is missing or incomplete" in caplog.text and "today)" in caplog.text


def test_a_scan_needs_no_time_of_a_claim_that_can_not_be_read(shop: World, traces: Traces) -> None:
    shop.tell()
    process_id = shop.start("order")
    message = shop.pop(["order"])
    assert message is not None and single.claim(shop.store, "order", *arguments(message), "gone#1", 0.001)
    shop.store.database.command(
        "update", schema.DECISIONS, bypassDocumentValidation=True,
        updates=[{"q": {"_id": f"{process_id}/start"}, "u": {"$set": {"claimedAt": "yesterday"}}}],
    )  # fmt: skip
    scanner = DecisionScanner(shop.app.resources, shop.app.outbox)
    wait_until(lambda: scanner.run_once().repaired, 10, "its requeue")
    (lost,) = traces.named("attempt order")
    assert lost.said("outcome") == "lost" and lost.end == lost.start
