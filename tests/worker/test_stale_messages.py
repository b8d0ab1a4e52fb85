"""Stale messages are dropped by the thousand; nothing else is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from recovery.errors import StoreUnavailable
from recovery.queue.untrusted import MAX_BYTES
from recovery.records.ids import child_task_id, new_pass, new_process_id, record_id
from recovery.settings import Settings
from recovery.store import Queued
from recovery.worker.messages import stale as stale_messages
from recovery.worker.messages.stale import drop_stale
from tests.world import World


@pytest.fixture
def world(emptied: Settings) -> World:
    return World(emptied)


def push_stale(world: World, count: int) -> None:
    """Messages of a process of which nothing is queued."""
    process, pass_key, now = new_process_id(), new_pass(), datetime.now(UTC)
    tasks = [child_task_id("start", 0, place) for place in range(count)]
    world.app.resources.broker.push([Queued(record_id(process, task), "order", pass_key, now) for task in tasks])


def order(number: int) -> int:
    return number


def test_what_waits_behind_them_is_next(world: World) -> None:
    process = world.app.process()(order)
    push_stale(world, 2 * stale_messages.PORTION + 500)
    started = world.start(process, 1)
    assert drop_stale(world.app.resources, "order") == 2 * stale_messages.PORTION + 500
    assert world.redis.llen("order") == 1
    assert world.pump() == 1
    assert world.app.result(started, timeout=0) == 1


def test_what_somebody_waits_for_stays_in_its_place(world: World) -> None:
    process = world.app.process()(order)
    first = world.start(process, 1)
    push_stale(world, 30)
    world.redis.lpush("order", "no message of ours", '{"headers": {"id": "another program\'s"}}', b"\xff\x80")
    push_stale(world, 30)
    second = world.start(process, 2)
    before = world.redis.lrange("order", 0, -1)
    assert drop_stale(world.app.resources, "order") == 60
    left = world.redis.lrange("order", 0, -1)
    assert left == [text for text in before if text in left] and len(left) == 5
    assert first.encode() in left[-1] and second.encode() in left[0]
    assert drop_stale(world.app.resources, "order") == 0


def test_what_is_too_large_for_a_message_is_left_to_whoever_takes_it(world: World) -> None:
    push_stale(world, 10)
    world.redis.lpush("order", "x" * 2_000_000)
    assert drop_stale(world.app.resources, "order") == 10
    left = world.redis.lrange("order", 0, -1)
    assert len(left) == 1 and MAX_BYTES < len(left[0]) < 2 * MAX_BYTES


def test_a_cut_while_they_are_judged_puts_them_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    push_stale(world, 10)
    before, judge, asked = world.redis.lrange("order", 0, -1), stale_messages._not_stale, iter([False, True])

    def cut(*args: Any) -> list[bytes]:
        if next(asked):
            raise StoreUnavailable("the database is away")
        return judge(*args)

    monkeypatch.setattr(stale_messages, "_not_stale", cut)
    with pytest.raises(StoreUnavailable):
        drop_stale(world.app.resources, "order")
    assert world.redis.lrange("order", 0, -1) == before


def test_where_few_are_stale_none_is_taken_out(world: World) -> None:
    process = world.app.process()(order)
    for number in range(5):
        world.start(process, number)
    push_stale(world, 2)
    before = world.redis.lrange("order", 0, -1)
    assert drop_stale(world.app.resources, "order") == 0
    assert world.redis.lrange("order", 0, -1) == before


def test_a_message_of_a_pass_before_is_stale(world: World) -> None:
    process_id = world.start(world.app.process()(order), 1)
    decision = world.decisions(process_id)["start"]
    world.app.resources.broker.push([Queued(decision.id, "order", new_pass(), datetime.now(UTC))])
    assert drop_stale(world.app.resources, "order") == 1
    assert world.pump() == 1


def test_those_of_an_aborted_process_are_stale(world: World) -> None:
    process_id = world.start(world.app.process()(order), 1)
    world.app.abort(process_id, "not wanted any more")
    assert drop_stale(world.app.resources, "order") == 1


def test_a_line_of_what_is_wanted_is_looked_at_once(world: World) -> None:
    process = world.app.process()(order)
    for number in range(3):
        world.start(process, number)
    assert drop_stale(world.app.resources, "order") == 0
    assert world.pump() == 3
