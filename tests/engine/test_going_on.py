"""A slot that goes on by itself, one task after the other, once those of an actor prove short."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recovery.engine import Batches, Result, Slot
from recovery.engine.lifecycle import pace as paces
from recovery.engine.lifecycle.pace import LEAST_SLOW
from recovery.queue import MessageId, parse_id
from tests.world import World, arguments, by_message_only

TASKS, BLOCKS = 5, 1


class Queue:
    """What a slot takes by itself; how many it asked for, each time."""

    def __init__(self, world: World) -> None:
        self.redis, self.asked = world.redis, list[int]()

    def hints(self, name: str, count: int) -> list[MessageId]:
        self.asked.append(count)
        texts: Any = self.redis.rpop(name, count) or []
        return [told for text in texts if (told := parse_id(json.loads(text)["headers"]["id"])) is not None]


@pytest.fixture
def queue(world: World) -> Queue:
    """In which processes of one task lie. An attempt of theirs that was lost may not be done again: they are never in
    batches."""

    @world.app.process(idempotent=False)
    def order(number: int, blocks: int) -> None:
        if number == blocks:
            world.store.actors.block("order")
            world.store.preferences.invalidate()

    world.tell()
    return Queue(world)


def run_one(world: World, queue: Queue, seconds: float, blocks: int = TASKS) -> Result:
    """A slot that has seen a task take so long is handed a message."""
    for number in range(TASKS):
        world.app.start("order", number, blocks)
    batches = Batches(world.app.resources, world.app.applier, queue.hints)
    batches._pace.note("order", seconds)
    slot = Slot(world.app.resources, world.app.applier, world.app.actors, "w#1", batches=batches)
    message = world.pop(["order"])
    assert message is not None
    with by_message_only():
        return slot.run(world.app.actors["order"], *arguments(message))


def finished(world: World) -> int:
    return world.store.database["decisions"].count_documents({"state": "finished"})


def test_it_takes_one_at_a_time_until_none_is_left(world: World, queue: Queue) -> None:
    assert run_one(world, queue, 2 * LEAST_SLOW) is Result.FINISHED
    assert (finished(world), queue.asked) == (TASKS, [1] * TASKS)


def test_it_waits_for_the_next_message_where_they_take_longer(
    world: World, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paces, "WEIGHT", 0.0)  # what follows is as long
    assert run_one(world, queue, 2 * paces.SHORT) is Result.FINISHED
    assert (finished(world), queue.asked, world.redis.llen("order")) == (1, [], TASKS - 1)


def test_it_leaves_the_rest_in_the_queue_once_the_actor_is_blocked(world: World, queue: Queue) -> None:
    assert run_one(world, queue, 2 * LEAST_SLOW, blocks=BLOCKS) is Result.FINISHED
    ran = BLOCKS + 1
    assert (finished(world), queue.asked, world.redis.llen("order")) == (ran, [1] * BLOCKS, TASKS - ran)
