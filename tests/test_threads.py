"""The skeleton of services that run in a thread of their own: when a step runs, what an error does, how it stops."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from unittest.mock import patch

import pytest

from recovery import threads
from recovery.threads import ServiceThread, poll
from tests.waiting import wait_until


@contextmanager
def running(service: ServiceThread) -> Iterator[None]:
    service.start()
    try:
        yield
    finally:
        service.stop(timeout=10)


def test_a_step_runs_when_it_is_woken() -> None:
    ran = list[int]()
    with running(service := ServiceThread("woken", lambda: ran.append(1))):
        service.wake()
        wait_until(lambda: len(ran) == 1, 10, "the first step")
        service.wake()
        wait_until(lambda: len(ran) == 2, 10, "the second step")
    assert len(ran) == 2


def test_a_step_runs_after_the_pause_that_it_returned() -> None:
    ran = list[int]()

    def step() -> float | None:
        ran.append(1)
        return 0.0 if len(ran) < 3 else None

    with running(ServiceThread("paused", step, first=0.0)):
        wait_until(lambda: len(ran) == 3, 10, "three steps")
    assert len(ran) == 3, "None: not before it is woken"


def test_a_wake_up_during_a_step_makes_it_run_once_more() -> None:
    ran, may_end = list[int](), threading.Event()

    def step() -> None:
        ran.append(1)
        may_end.wait(10)

    with running(service := ServiceThread("busy", step, first=0.0)):
        wait_until(lambda: ran, 10, "the first step")
        service.wake()
        service.wake()
        may_end.set()
        wait_until(lambda: len(ran) == 2, 10, "one step more")


def test_steps_are_apart_however_often_it_is_woken() -> None:
    ran = list[float]()
    with running(service := ServiceThread("apart", lambda: ran.append(time.monotonic()), first=0.0, apart=0.2)):

        def three() -> bool:
            service.wake()
            return len(ran) >= 3

        wait_until(three, 10, "three steps")
    assert all(after - before >= 0.2 for before, after in pairwise(ran))


def test_the_least_pause_is_a_part_of_the_one_that_the_step_returned() -> None:
    ran = list[float]()

    def step() -> float:
        ran.append(time.monotonic())
        return 0.3

    with running(ServiceThread("both", step, first=0.0, apart=0.25)):
        wait_until(lambda: len(ran) >= 4, 10, "four steps")
    assert min(after - before for before, after in pairwise(ran)) < 0.5


def test_an_error_is_logged_and_the_step_runs_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "RETRY", 0.01)
    ran = list[int]()

    def step() -> None:
        ran.append(1)
        if len(ran) < 4:
            raise KeyError("odd")

    with running(ServiceThread("failing", step, first=0.0)):
        wait_until(lambda: len(ran) == 4, 10, "the step that succeeds")
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert lines == ["failing failed (KeyError: 'odd'); it runs again in 0.01 s"], "once"


def test_a_service_may_decide_what_an_error_does() -> None:
    told = list[Exception]()

    def failed(error: Exception) -> float | None:
        told.append(error)
        return 0.0 if len(told) < 2 else None

    with running(ServiceThread("decides", lambda: 1 / 0, failed, first=0.0)):
        wait_until(lambda: len(told) == 2, 10, "two errors")
    assert len(told) == 2


def test_an_error_about_an_error_does_not_end_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "RETRY", 0.01)
    ran = list[int]()

    def step() -> None:
        ran.append(1)
        raise KeyError("odd")

    def failed(error: Exception) -> None:
        raise ValueError("odder") from error

    with running(ServiceThread("failing twice", step, failed, first=0.0)):
        wait_until(lambda: len(ran) > 2, 10, "the third step")


def test_stop_waits_for_the_step_for_a_bounded_time() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def step() -> None:
        begun.set()
        may_end.wait(10)

    service = ServiceThread("slow", step, first=0.0)
    service.start()
    assert begun.wait(10)
    service.stop()
    service.stop(timeout=0.01)
    assert service.is_ending
    assert any(thread.name == "slow" for thread in threading.enumerate())
    may_end.set()
    service.stop(timeout=None)
    assert not any(thread.name == "slow" for thread in threading.enumerate())


def test_a_pause_within_a_step_ends_with_the_service() -> None:
    seen = list[bool]()

    def step() -> None:
        seen.append(service.pause(60))

    service = ServiceThread("pausing", step, first=0.0)
    service.start()
    service.stop(timeout=10)
    assert seen in ([], [True])


def test_a_service_is_begun_once_a_thread_can_be_had() -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    service = ServiceThread("late", lambda: None)
    with patch.object(threading.Thread, "start", refuse):
        assert not service.begin()
        with pytest.raises(RuntimeError, match="no thread can be started for late"):
            service.start()
    assert service.begin()
    service.stop(timeout=10)


def test_a_fork_begins_a_thread_of_its_own() -> None:
    ran = list[int]()
    with running(service := ServiceThread("forked", lambda: ran.append(1))):
        if not (pid := os.fork()):
            service.wake()
            service.begin()
            wait_until(lambda: ran, 10, "a step in the child")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not ran


def test_a_poll_returns_what_it_waited_for() -> None:
    looks = iter([0, 0, 7, 8])
    assert poll(lambda: next(looks), timeout=10, every=0.001) == 7


def test_a_poll_ends_after_its_time_and_looks_once_at_least() -> None:
    looks = list[int]()
    assert not poll(lambda: looks.append(1), timeout=0.0, every=10)
    assert looks == [1]
