"""Whose turn it is: one at a time, nothing is taken out that nobody saw, and a turn lapses with whoever had it."""

from __future__ import annotations

import pytest
import redis

from recovery.errors import BrokerError
from recovery.queue import Turns
from recovery.queue.coordination import APPLY_KEY, TurnStep
from recovery.settings import Settings
from tests.waiting import wait_until


@pytest.fixture
def turns(emptied: Settings) -> Turns:
    return Turns(emptied.broker_url, lifetime=60.0)


def test_whoever_is_first_goes_on_until_nothing_is_left(turns: Turns) -> None:
    assert turns.join("p", ["a", "b"])
    assert not turns.join("p", ["c"]), "the first has the turn"
    assert turns.join("q", ["a"]), "of each process there is one"
    assert turns.go_on("p", 0, 2) == TurnStep((), ("a", "b"))
    assert not turns.join("p", ["d"])
    assert turns.go_on("p", 2, 10) == TurnStep(("a", "b"), ("c", "d"))
    assert turns.go_on("p", 2, 10) == TurnStep(("c", "d"), ())
    assert turns.join("p", ["e"]), "the turn was over"


def test_who_was_superseded_gets_what_it_takes_out(turns: Turns, emptied: Settings) -> None:
    turns.join("p", ["a"])
    turns.go_on("p", 0, 10)
    with redis.Redis.from_url(emptied.broker_url) as server:
        server.delete(APPLY_KEY.format("p"))
    assert turns.join("p", ["b", "c"]), "the list was gone, and with it the turn"
    assert turns.go_on("p", 1, 10) == TurnStep(("b",), ("c",))


def test_a_turn_that_nobody_serves_lapses(emptied: Settings) -> None:
    turns = Turns(emptied.broker_url, lifetime=0.2)
    assert turns.join("p", ["a"])
    wait_until(lambda: turns.join("p", ["b"]), 5, "somebody else has the turn")
    assert turns.go_on("p", 0, 10).waiting[-1] == "b"


def test_it_lapses_where_its_first_ended_at_once(emptied: Settings) -> None:
    """Between its two commands."""
    with redis.Redis.from_url(emptied.broker_url) as server:
        server.lpush(APPLY_KEY.format("p"), "a")
    turns = Turns(emptied.broker_url, lifetime=0.2)
    assert not turns.join("p", ["b"])
    wait_until(lambda: turns.join("p", ["c"]), 5, "somebody else has the turn")


def test_something_else_in_the_place_of_the_list(turns: Turns, emptied: Settings) -> None:
    with redis.Redis.from_url(emptied.broker_url) as server:
        server.set(APPLY_KEY.format("p"), "x")
    with pytest.raises(BrokerError, match="WRONGTYPE"):
        turns.join("p", ["a"])
    with pytest.raises(BrokerError, match="WRONGTYPE"):
        turns.go_on("p", 1, 10)
