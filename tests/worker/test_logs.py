"""The log of a worker: who speaks, what became of each attempt, and that a server is back."""

from __future__ import annotations

import json
import logging
import math
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery
from celery.app import trace
from celery.exceptions import Reject

from recovery import LogContext, Recovery, Settings
from recovery.engine import Slot
from recovery.queue import broker
from recovery.scan import DecisionScanner
from recovery.stack import ChildProcess, Mongod, Stack, Valkey
from recovery.stack.server_process import HOST
from recovery.worker.logs import _AlsoOfOutage, _SingleTasks
from recovery.worker.messages.queue_consumption import QueueConsumption
from recovery.worker.outage_logs import Outage
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.store import single
from tests.waiting import wait_until
from tests.worker import telling
from tests.world import World, arguments

OWN = "test.own"


class Kept(logging.Handler):
    """The lines of a program that formats its logs itself."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.addFilter(LogContext())
        fields = ("process", "task", "actor", "attempt")
        self.setFormatter(logging.Formatter("|".join(f"%(recovery_{name})s" for name in fields) + "|%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler, logger = Kept(), logging.getLogger(OWN)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)


@pytest.fixture
def world(emptied: Settings) -> World:
    return World(emptied)


def test_a_line_says_which_attempt_of_which_task_it_is_of(world: World, kept: Kept) -> None:
    @world.app.process()
    def order() -> None:
        logging.getLogger(OWN).info("packing")

    process_id = world.start(order)
    message = world.pop(["order"])
    assert message is not None
    world.tell()
    assert single.claim(world.store, "order", *arguments(message), "gone#1", 0.001)
    wait_until(lambda: DecisionScanner(world.app.resources, world.app.outbox).run_once().repaired, 10, "its requeue")
    logging.getLogger(OWN).info("before")
    world.pump()
    logging.getLogger(OWN).info("after")
    assert kept.lines == ["||||before", f"{process_id}|start|order|2|packing", "||||after"]


def test_of_two_threads_each_has_its_own(world: World, kept: Kept) -> None:
    both = Barrier(2)

    @world.app.process()
    def order(number: int) -> None:
        both.wait(10)
        logging.getLogger(OWN).info("packing %d", number)
        both.wait(10)

    ids = [world.start(order, number) for number in range(2)]
    world.tell()
    messages = [world.pop(["order"]), world.pop(["order"])]

    def run(holder: str) -> None:
        message = messages.pop()
        assert message is not None
        Slot(world.app.resources, world.app.outbox, world.app.actors, holder).run(order, *arguments(message))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, ["one#1", "one#2"]))
    assert sorted(kept.lines) == sorted(f"{ids[number]}|start|order|1|packing {number}" for number in range(2))


def test_a_line_that_went_through_a_queue_keeps_what_it_said() -> None:
    record = logging.makeLogRecord({"msg": "packing", "recovery": "pack p/t attempt 1: "})
    assert LogContext().filter(record)
    assert record.__dict__["recovery"] == "pack p/t attempt 1: "


def test_a_line_that_says_itself_what_it_is_of_keeps_that(kept: Kept) -> None:
    said = {"recovery_process": "p", "recovery_task": "t", "recovery_actor": "pack", "recovery_attempt": 2}
    logging.getLogger(OWN).info("tried again", extra=said)
    assert kept.lines == ["p|t|pack|2|tried again"]


@pytest.mark.cluster
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_of_a_worker(stack: Stack, settings: Settings, pool: str) -> None:
    """The two tasks of the story are run on the spot."""
    worker = stack.start_worker(
        f"{telling.__name__}:app", concurrency=1, pool=pool, log_level="debug", env=settings.environment()
    )
    app = Recovery(settings)
    app.actors = telling.app.actors
    told, refused = app.start("story"), app.start("refusal")
    assert app.result(told, timeout=60) == "second"
    ended = app.resources.store.processes.ended
    wait_until(lambda: ended([refused])[refused].ended_at, 30, "the end of the other")
    ends = rf"(\w+) ((?:{told}|{refused})/\w+) attempt 1: (\w+) in [\d.]+ s$"
    wait_until(lambda: len(re.findall(ends, worker.log.read_text(), re.MULTILINE)) >= 5, 10, "five ends")
    log = worker.log.read_text()
    decisions = list(app.resources.store.database["decisions"].find())
    assert sorted(re.findall(ends, log, re.MULTILINE)) == sorted(
        (one["actor"], one["_id"], "failed" if "error" in one["outcome"] else "finished") for one in decisions
    )
    assert "succeeded" not in log
    of = {json.loads(one["outcome"]["value"]): one["_id"] for one in decisions if one["actor"] == "tell"}
    for text in ("first", "second"):
        for way in ("logging", "Celery's logger", "print"):
            (line,) = (line for line in log.splitlines() if f"{text} by {way}" in line)
            assert line.endswith(f"] tell {of[text]} attempt 1: {text} by {way}"), line
    (ready,) = (line for line in log.splitlines() if line.endswith(" ready."))
    assert re.search(r"MainProcess\] [^ ]+ ready\.$", ready), "no attempt runs there"


@pytest.mark.cluster
def test_a_task_is_logged_only_if_it_fails_and_with_its_stack_in_lines(stack: Stack, settings: Settings) -> None:
    worker = stack.start_worker(f"{telling.__name__}:app", concurrency=1, env=settings.environment())
    app = Recovery(settings)
    app.actors = telling.app.actors
    told, refused = app.start("printed_stack"), app.start("refusal")
    app.result(told, timeout=60)
    ended = app.resources.store.processes.ended
    wait_until(lambda: ended([refused])[refused].ended_at, 30, "the end of the other")
    wait_until(partial(says, worker, "ValueError: not today", 2), 10, "the error and its stack")
    log = worker.log.read_text()
    lines = log[log.index(" ready.") :].splitlines()[1:]
    assert [line for line in lines if told in line and "print_stack" not in line] == [], "nothing but what was printed"
    assert [re.sub(r".*attempt 1: ", "", line) for line in lines if told in line or "1 / 0" in line] == [
        "Traceback (most recent call last):",
        '  File "' + telling.__file__ + f'", line {telling.LINE}, in print_stack',
        "      1 / 0  # noqa: B018",
        "ZeroDivisionError: division by zero",
    ]
    (place,) = (number for number, line in enumerate(lines) if "ValueError: not today; code" in line)
    assert "WARNING" in lines[place] and refused in lines[place]
    assert lines[place + 1] == "  Traceback (most recent call last):"
    assert "  ValueError: not today" in lines[place + 2 :]
    assert "\\n" not in log[log.index(" ready.") :]


def test_a_message_of_a_blocked_actor_is_given_back_without_a_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Celery logs it in a slot that knows of the block before the worker's parent process."""
    lines: list[str] = []
    kept = logging.Handler()
    kept.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    monkeypatch.setattr(kept, "emit", lambda record: lines.append(kept.format(record)))
    monkeypatch.setattr(trace.logger, "handlers", [kept])
    monkeypatch.setattr(trace.logger, "filters", [_SingleTasks()])
    monkeypatch.setattr(trace.logger, "level", logging.DEBUG)

    @Celery(set_as_current=False).task(name="story")
    def story() -> None:
        raise Reject("story is blocked", requeue=True)

    story.apply(task_id="p/start")
    assert lines == ["DEBUG Task story[p/start] reject requeue=True: story is blocked"]


@pytest.mark.cluster
def test_an_outage_is_logged_once_and_so_is_its_end(stack: Stack, settings: Settings, tmp_path: Path) -> None:
    """Of each server, however often it is tried meanwhile, and not the first connection."""
    valkey, mongod = Valkey(tmp_path / "valkey", tmp_path / "valkey.log"), Mongod(tmp_path / "db", tmp_path / "db.log")
    valkey.start()
    mongod.start()
    own = {"mongo_uri": mongod.uri, "broker_url": valkey.url, "heartbeat_interval": 0.2, "heartbeat_timeout": 0.6}
    env = settings.model_copy(update=own).environment()
    worker = stack.start_worker(f"{telling.__name__}:app", concurrency=1, env=env)
    try:
        wait_until(partial(says, worker, " ready.", 1), 60, "the worker")
        expected: list[str] = []
        for server, away, back in (
            (valkey, "Redis at .* is away", "Redis is back, after"),
            (mongod, "no heartbeat is written", "MongoDB takes heartbeats again"),
            (valkey, "Redis at .* is away", "Redis is back, after"),
        ):
            server.kill()
            wait_until(partial(logged, worker, away, expected.count(away) + 1), 30, "its end in the log")
            wait_for_tries(server.port, 2)
            server.start()
            wait_until(partial(logged, worker, back, expected.count(back) + 1), 60, "its return in the log")
            expected += [away, back]
        log = worker.log.read_text()
        lines = [line for line in log[log.index(" ready.") :].splitlines()[1:] if "MainProcess" in line]
        assert len(lines) == len(expected), lines
        assert all(re.search(f"WARNING.*{found}", line) for found, line in zip(expected, lines, strict=True))
        assert "Traceback" not in log and "\\n" not in log
    finally:
        worker.kill_group()
        valkey.stop()
        mongod.stop()


@pytest.mark.parametrize(
    ("since", "ended", "is_shown"),
    [(None, None, True), (None, 60.0, True), (None, 1.0, False), (9.0, None, False)],
    ids=["none", "one before", "over a moment ago", "one now"],
)
def test_that_messages_are_not_sent_and_sent_again_is_logged_unless_an_outage_is(
    monkeypatch: pytest.MonkeyPatch, since: float | None, ended: float | None, is_shown: bool
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(Outage, "since", None if since is None else now - since)
    monkeypatch.setattr(Outage, "ended_at", -math.inf if ended is None else now - ended)
    monkeypatch.setattr(logging.getLogger(broker.__name__), "level", logging.INFO)
    made = {"name": broker.__name__, "msg": broker.SENT_AGAIN, "args": (10.0,), "levelno": logging.WARNING}
    assert _AlsoOfOutage().filter(logging.makeLogRecord({**made, "processName": "MainProcess"})) is is_shown
    assert _AlsoOfOutage().filter(logging.makeLogRecord({**made, "processName": "ForkPoolWorker-1"}))
    failed = {**made, "msg": broker.NOT_PUSHED, "args": (3, "refused"), "processName": "MainProcess"}
    assert _AlsoOfOutage().filter(logging.makeLogRecord(failed)) is (since is None)


def wait_for_tries(port: int, count: int) -> None:
    """Be a server that closes each connection, until so many were made."""
    with socket.create_server((HOST, port)) as server:
        server.settimeout(30)
        for _ in range(count):
            server.accept()[0].close()


def logged(worker: ChildProcess, what: str, times: int) -> bool:
    return len(re.findall(what, worker.log.read_text())) >= times


def says(worker: ChildProcess, what: str, times: int) -> bool:
    return worker.log.read_text().count(what) >= times


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (redis.ConnectionError("refused"), logging.DEBUG),
        (redis.TimeoutError("no answer"), logging.DEBUG),
        (redis.ResponseError("WRONGTYPE"), logging.WARNING),
    ],
)
def test_queues_that_are_not_changed_are_no_second_line_of_an_outage(
    caplog: pytest.LogCaptureFixture, error: Exception, level: int
) -> None:
    def consuming_from(_name: str) -> bool:
        raise error

    consumer = SimpleNamespace(
        task_consumer=SimpleNamespace(consuming_from=consuming_from), call_soon=lambda function: function()
    )
    celery: Any = Celery(set_as_current=False)
    consumption = QueueConsumption(SimpleNamespace(app=celery, consumer=consumer), ["add"])
    celery.amqp.queues.add("add")
    with caplog.at_level(logging.DEBUG, "recovery"):
        consumption.hold()
    (record,) = [one for one in caplog.records if "could not change which queues" in one.getMessage()]
    assert record.levelno == level and str(error) in record.getMessage()
