"""Parts that are made when they are first used: by several threads at once, and across a fork."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from recovery.engine.resources import Queueing
from recovery.lazy_imports import Part
from recovery.queue.coordination import Turns
from recovery.settings import Settings
from recovery.worker.start_up import keep_what_is_imported


def test_threads_that_make_a_part_at_once_get_the_same(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    queueing, both = Queueing(settings), threading.Barrier(2)
    made = Turns.__init__

    def make(self: Turns, *arguments: object) -> None:
        both.wait(10)
        made(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Turns, "__init__", make)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: queueing.turns, range(2))
    assert first is second is queueing.turns


def test_a_fork_while_another_thread_makes_a_part_leaves_no_lock(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, begun, forked = os.getpid(), threading.Event(), threading.Event()
    made = Turns.__init__

    def make(self: Turns, *arguments: object) -> None:
        if os.getpid() == parent:
            begun.set()
            forked.wait(10)
        made(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Turns, "__init__", make)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: Queueing(settings).turns)
        assert begun.wait(10)
        child = os.fork()
        if child == 0:
            signal.alarm(5)
            os._exit(0 if isinstance(Queueing(settings).turns, Turns) else 1)
        forked.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_worker_has_imported_all_parts_before_its_pool_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = set[str]()
    monkeypatch.setattr(Part, "_load", lambda part: loaded.add(part._name))
    monkeypatch.setattr("gc.freeze", lambda: None)
    keep_what_is_imported()
    assert {"decisions", "processes", "broker", "turns"} <= loaded
