"""Writes that MongoDB does not confirm are told of after a few seconds, and when that is over."""

from __future__ import annotations

import threading

import pytest

from recovery import waits
from recovery.waits import Waits
from tests.waiting import wait_until

SOON = 0.1


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == waits.__name__]


def test_a_write_that_waits_is_told_of_while_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    calls = Waits(SOON)
    with calls.noted("p1/start"), calls.noted("p2/start"):
        wait_until(lambda: said(caplog), 10, "a word")
        calls.look()
        (line,) = said(caplog)
        assert line.startswith("MongoDB has not confirmed ") and " such as of p" in line
    wait_until(lambda: len(said(caplog)) == 2, 10, "that it is over")
    assert said(caplog)[1].startswith("MongoDB confirms writes again; the longest waited for")
    wait_until(lambda: not any(thread.name == "waits" for thread in threading.enumerate()), 10, "the end of the thread")
    with calls.noted("p3/start"):
        wait_until(lambda: len(said(caplog)) == 3, 10, "a word on the next one")


def test_of_writes_that_are_confirmed_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    calls = Waits(60)
    for number in range(100):
        with calls.noted(str(number)):
            calls.look()
    assert said(caplog) == []


def test_a_write_goes_on_where_no_thread_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Waits(SOON).noted("p"):
        pass
