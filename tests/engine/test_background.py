"""What goes on in the background of a program after a start is acknowledged: no thread can be begun, the database is
cut off, the program ends."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest

from recovery.engine import Resources
from recovery.engine.run.hand import Hand, Watch
from recovery.engine.start import registration as registrar
from recovery.errors import SettingsError, StoreRefused, StoreUnavailable
from recovery.queue.remote import tell_workers
from recovery.settings import Settings
from recovery.stack.server_process import HOST
from recovery.store import Store
from recovery.store.lifecycle.decisions import Decisions
from recovery.store.lifecycle.graphs import Graphs
from recovery.store.lifecycle.tasks import Tasks
from tests.faults.threads import threads_held
from tests.silence import way_to
from tests.waiting import wait_until
from tests.world import World

BACK_TIMEOUT = 2.0
"""Seconds from the return of the database to the registration of what was started before."""


def order_of(world: World) -> Any:
    @world.app.process()
    def order(number: int = 1) -> int:
        return number

    world.tell()
    return order


@pytest.fixture
def order(world: World) -> Any:
    return order_of(world)


def no_thread_named(name: str) -> Callable[[threading.Thread], None]:
    """As a system has it that has no thread to give the first time."""
    real, failed = threading.Thread.start, list[str]()

    def start(thread: threading.Thread) -> None:
        if thread.name == name and not failed:
            failed.append(name)
            raise RuntimeError("can't start new thread")
        real(thread)

    return start


def test_a_start_is_registered_though_no_thread_can_be_begun(world: World, order: Any) -> None:
    with patch.object(threading.Thread, "start", no_thread_named("registrar")):
        first = world.app.start(order)
        assert world.counts()["decisions"] == 1, "by whoever started it"
        second = world.app.start(order)
        assert world.app.registrar.wait(10)
    assert world.counts()["decisions"] == 2
    assert {thread.name for thread in threading.enumerate()} >= {"registrar"}, "by the thread, that time"
    world.pump()
    assert [world.app.result(one, timeout=0) for one in (first, second)] == [1, 1]


@pytest.mark.parametrize("name", ["outbox", "outbox beside"])
def test_what_ends_is_applied_though_no_thread_can_be_begun(world: World, order: Any, name: str) -> None:
    process_id = world.app.start(order)
    assert world.app.registrar.wait(10)
    with patch.object(threading.Thread, "start", no_thread_named(name)):
        world.take_one("order")
    world.app.outbox.flush()
    assert world.process(process_id).state == "finished"
    again = world.app.start(order)
    assert world.app.registrar.wait(10)
    world.take_one("order")
    wait_until(lambda: world.process(again).state == "finished", 10, "the thread to apply it")


def test_hands_are_watched_once_a_thread_can_be_begun() -> None:
    watch = Watch()
    with patch.object(threading.Thread, "start", no_thread_named("hands")):
        with watch.over(Hand([]), lambda *_: None):
            pass
        with watch.over(Hand([]), lambda *_: None):
            assert watch._thread._thread is not None


def test_a_task_is_not_charged_for_a_heartbeat_without_a_thread(world: World) -> None:
    @world.app.process(auto_heartbeat=True)
    def beats() -> int:
        return 1

    world.tell()
    process_id = world.start(beats)
    with patch.object(threading.Thread, "start", no_thread_named("heartbeat")):
        world.pump()
    assert world.app.result(process_id, timeout=0) == 1


def test_a_change_that_is_saved_is_no_error_if_workers_cannot_be_told(world: World) -> None:
    with patch.object(threading.Thread, "start", no_thread_named("tell workers")):
        assert not tell_workers(world.settings.broker_url, "reload")


@pytest.mark.parametrize(
    ("error", "unreadable"),
    [
        (StoreUnavailable("cut off"), 0),
        (StoreRefused("no such name"), 0),
        (RuntimeError("can't start new thread"), 2),
        (KeyError("odd"), 0),
    ],
    ids=["cut off", "no names", "no threads, and no certificate for a while", "odd"],
)
def test_what_could_not_be_registered_is_tried_again(
    world: World, order: Any, error: Exception, unreadable: int
) -> None:
    real, tried = registrar.register_all, list[int]()
    opened = iter([SettingsError("the certificate can't be read")] * unreadable)

    def store(*args: Any, **kwargs: Any) -> Store:
        if (refusal := next(opened, None)) is not None:
            raise refusal
        return Store(*args, **kwargs)

    def register_all(resources: Any, processes: Any, passes: Any, *, again: bool) -> None:
        tried.append(len(processes))
        if len(tried) < 4:
            raise error
        real(resources, processes, passes, again=again)

    with patch.object(registrar, "register_all", register_all), patch.object(registrar, "Store", store):
        for number in range(3):
            world.app.start(order, number)
        wait_until(lambda: world.counts()["decisions"] == 3, 10, "all to be registered")
    assert world.app.registrar.wait(1)


@pytest.mark.parametrize(
    "step", [(Tasks, "insert"), (Graphs, "insert"), (Decisions, "insert_queued")], ids=["task", "graph", "decision"]
)
def test_a_registration_whose_answer_was_lost_leaves_a_message(
    world: World, order: Any, monkeypatch: pytest.MonkeyPatch, step: tuple[type, str]
) -> None:
    """No scan runs here that would find it missing."""
    real, answers = getattr(*step), iter([StoreUnavailable("the answer is lost")])

    def insert(*args: Any) -> Any:
        done = real(*args)
        if (lost := next(answers, None)) is not None:
            raise lost
        return done

    monkeypatch.setattr(*step, insert)
    process_id = world.app.start(order)
    wait_until(lambda: world.redis.llen("order"), 10, "its message")
    world.pump()
    assert world.app.result(process_id, timeout=0) == 1


@pytest.mark.thorough
def test_a_client_that_was_cut_off_registers_as_soon_as_it_is_back(settings: Settings) -> None:
    """Its connections are silent for ever: what answers is on new ones."""
    with way_to(urlsplit(settings.mongo_uri).port or 0) as way:
        over = {"mongo_uri": f"mongodb://{HOST}:{way.port}/?directConnection=true"}
        client, others = World(settings.model_copy(update=over)), World(settings)
        order = order_of(client)
        with threads_held():
            client.app.start(order)
            way.silence(answers_calls=True)
        client.app.registrar._start_thread()
        wait_until(lambda: client.app.registrar._failed, 10, "a try that fails")
        way.speak(remembers=False)
        spoke = time.monotonic()
        wait_until(lambda: others.counts()["decisions"] == 1, 10, "its registration")
        assert time.monotonic() - spoke < BACK_TIMEOUT


def test_a_start_that_meets_its_own_custom_id_registers_it(settings: Settings) -> None:
    """Whoever was not told that it is started asks again; perhaps it is another program by now."""
    first, second = World(settings), World(settings)
    order_of(first)
    order = order_of(second)
    with threads_held():
        process_id = first.app.start("order", 1, custom_id="o1")
    assert second.counts()["decisions"] == 0
    assert second.app.start(order, 1, custom_id="o1") == process_id
    assert second.app.registrar.wait(10)
    second.pump()
    assert second.app.result(process_id, timeout=0) == 1
    assert second.app.start(order, 1, custom_id="o1") == process_id, "and that it has ended changes nothing"
    assert second.counts() == dict.fromkeys(("processes", "tasks", "decisions", "graphs"), 1)


def test_a_process_of_multiprocessing_registers_before_it_ends(world: World, order: Any) -> None:
    """It ends without what `atexit` has; its thread ends with it."""
    real = registrar.register_all

    def slow(resources: Any, processes: Any, passes: Any, *, again: bool) -> None:
        threading.Event().wait(0.5)
        real(resources, processes, passes, again=again)

    def child() -> None:
        with patch.object(registrar, "register_all", slow):
            world.app.start(order)
            # Until it ends in its own way, as it does once this returns.
            patch.object(registrar, "register_all", slow).start()

    started = multiprocessing.get_context("fork").Process(target=child)
    started.start()
    started.join(30)
    assert started.exitcode == 0
    assert world.counts()["decisions"] == 1


def test_threads_that_come_first_together_share_one_registrar(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one of them waits for a registrar that has nothing to register."""
    both, connect = threading.Barrier(2, timeout=10), Resources.connect

    def connect_together(*args: Any) -> Resources:
        both.wait()
        return connect(*args)

    monkeypatch.setattr(Resources, "connect", connect_together)
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(lambda: world.app.registrar) for _ in range(2)]
        first, second = (one.result(10) for one in found)
    assert first is second
