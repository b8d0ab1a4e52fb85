"""What is started one after the other is registered some at a time; what is started alone, at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pytest

from recovery.engine.start import registration as registrar
from recovery.records import Process
from tests.waiting import wait_until
from tests.world import World

GATHERED_FOR = 1.0
"""Seconds, instead of some milliseconds."""


class Rounds:
    """How many processes were registered at once, round by round. The first round ends when it is told to."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.go_on = threading.Event()
        self._register = registrar.register_all

    def __call__(self, resources: Any, processes: Sequence[Process], passes: Any, *, again: bool) -> None:
        self.sizes.append(len(processes))
        assert self.go_on.wait(30)
        self._register(resources, processes, passes, again=again)

    def ended(self, world: World) -> None:
        """Wait for the end of the round that goes on, which flushes nothing."""
        wait_until(lambda: not world.app.registrar._registering.locked(), 10, "the round's end")


@pytest.fixture
def order(world: World) -> Any:
    @world.app.process()
    def order(number: int) -> int:
        return number

    world.tell()
    return order


@pytest.fixture
def rounds(world: World) -> Iterator[Rounds]:
    rounds = Rounds()
    with patch.object(registrar, "register_all", rounds):
        try:
            yield rounds
        finally:
            rounds.go_on.set()
            assert world.app.registrar.wait(10)


def test_one_alone_waits_for_no_other(world: World, order: Any, rounds: Rounds) -> None:
    rounds.go_on.set()
    for number in range(3):
        world.app.start(order, number)
        wait_until(lambda number=number: world.counts()["decisions"] == number + 1, 10, "its records")
        rounds.ended(world)


def test_more_of_them_wait_for_each_other(world: World, order: Any, rounds: Rounds) -> None:
    world.app.registrar._thread._apart = GATHERED_FOR
    world.app.start(order, 0)
    wait_until(lambda: rounds.sizes == [1], 10, "the first round")
    for number in (1, 2):
        world.app.start(order, number)
    rounds.go_on.set()
    rounds.ended(world)
    world.app.start(order, 3)
    assert rounds.sizes == [1]
    assert world.app.registrar.wait(10)
    assert rounds.sizes == [1, 3]
    assert world.counts()["decisions"] == 4


def test_as_many_as_go_together_wait_for_no_more(world: World, order: Any, rounds: Rounds) -> None:
    with patch.object(registrar, "TOGETHER", 3):
        world.app.start(order, 0)
        wait_until(lambda: rounds.sizes == [1], 10, "the first round")
        for number in (1, 2, 3):
            world.app.start(order, number)
        rounds.go_on.set()
        wait_until(lambda: rounds.sizes == [1, 3], 10, "the second round")


def test_a_flush_waits_for_no_other_and_for_the_round_that_goes_on(world: World, order: Any, rounds: Rounds) -> None:
    world.app.start(order, 0)
    wait_until(lambda: rounds.sizes == [1], 10, "the first round")
    world.app.start(order, 1)
    flushing = threading.Thread(target=world.app.registrar.flush)
    flushing.start()
    assert rounds.sizes == [1] and world.counts()["decisions"] == 0
    rounds.go_on.set()
    flushing.join(10)
    assert world.counts()["decisions"] == 2
