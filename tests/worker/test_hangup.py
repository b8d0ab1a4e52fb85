"""SIGHUP in the main process of a worker or beat."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from recovery.worker import control


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def told_to_end() -> Iterator[list[int]]:
    """The signals that tell this process to end, which are noted here and do not end it."""
    seen = list[int]()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    yield seen
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_terminal_that_closes_ends_a_worker(told_to_end: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    control.handle_hangup()
    os.kill(os.getpid(), signal.SIGHUP)
    assert told_to_end == [signal.SIGTERM]


def test_without_a_terminal_it_ends_nothing(told_to_end: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    control.handle_hangup()
    os.kill(os.getpid(), signal.SIGHUP)
    assert told_to_end == []
