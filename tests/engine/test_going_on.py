"""A slot that goes on by itself, one task after the other, once those of an actor prove short."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from recovery.engine import Intake, Pace, Result, Slot
from recovery.engine.run import pace as paces
from recovery.engine.run.pace import LEAST_SLOW
from recovery.queue import MessageId, parse_id
from recovery.records.ids import new_pass
from recovery.store.lifecycle.decisions import Decisions
from tests.world import World, arguments, by_message_only

TASKS, BLOCKS = 5, 1


class Queue:
    """What a slot takes by itself; how many it asked for, each time."""

    def __init__(self, world: World) -> None:
        self.redis, self.asked = world.redis, list[int]()
        self.taken: Callable[[], None] = lambda: None

    def hints(self, name: str, count: int) -> list[MessageId]:
        self.asked.append(count)
        texts: Any = self.redis.rpop(name, count) or []
        self.taken()
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


def start_all(world: World, blocks: int = TASKS) -> list[str]:
    """Start as many processes as there are tasks, which one of them blocks; their decisions."""
    return [f"{world.start('order', number, blocks)}/start" for number in range(TASKS)]


def started(world: World) -> list[str]:
    return [one["_id"] for one in world.store.database["decisions"].find({}, {"_id": True})]


def run_one(world: World, queue: Queue, seconds: float, blocks: int = TASKS) -> Result:
    """A slot that has seen a task take so long is handed a message."""
    if not started(world):
        start_all(world, blocks)
    intake = Intake(queue.hints, Pace(64))
    intake.pace.note("order", seconds)
    slot = Slot(world.app.resources, world.app.outbox, world.app.actors, "w#1", intake=intake)
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


def test_a_task_is_not_begun_if_its_actor_was_blocked_while_it_was_claimed(
    world: World, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Decisions.claim

    def claim(*args: Any, **kwargs: Any) -> Any:
        claimed = real(*args, **kwargs)
        world.store.actors.block("order")
        world.store.preferences.invalidate()
        return claimed

    monkeypatch.setattr(Decisions, "claim", claim)
    assert run_one(world, queue, 2 * paces.SHORT) is Result.CLAIM_LOST
    assert finished(world) == 0
    assert world.store.database["decisions"].count_documents({"state": "queued"}) == TASKS


def test_no_task_of_a_batch_begins_once_its_actor_is_blocked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever blocked it is told so as soon as all slots know."""
    began = list[int]()

    @world.app.process()
    def quick(number: int) -> int:
        began.append(number)
        if number == BLOCKS:
            world.store.actors.block("quick")
            world.store.preferences.invalidate()
        return number

    world.tell()
    for number in range(TASKS):
        world.start("quick", number)
    intake = Intake(Queue(world).hints, Pace(64))
    monkeypatch.setattr(intake.pace, "room", lambda _: TASKS)
    slot = Slot(world.app.resources, world.app.outbox, world.app.actors, "w#1", intake=intake)
    message = world.pop(["quick"])
    assert message is not None
    assert slot.run(world.app.actors["quick"], *arguments(message)) is Result.FINISHED
    assert began == list(range(BLOCKS + 1))
    assert (finished(world), world.redis.llen("quick")) == (BLOCKS + 1, TASKS - BLOCKS - 1), "the rest is given back"
    world.store.actors.unblock("quick")
    world.store.preferences.invalidate()
    world.pump()
    assert finished(world) == TASKS and sorted(began) == list(range(TASKS))


def test_what_was_taken_when_the_actor_was_blocked_comes_next(world: World, queue: Queue) -> None:
    def block() -> None:
        world.store.actors.block("order")
        world.store.preferences.invalidate()

    queue.taken = block
    assert run_one(world, queue, 2 * LEAST_SLOW) is Result.FINISHED
    assert (finished(world), world.redis.llen("order")) == (1, TASKS - 1), "with its message"
    world.store.actors.unblock("order")
    world.store.preferences.invalidate()
    world.pump()
    assert finished(world) == TASKS
    claimed = world.store.database["decisions"].find().sort("claimedAt", 1)
    assert [one["_id"] for one in claimed] == sorted(started(world)), "in their order"


@pytest.mark.parametrize("all_stale", [False, True])
def test_stale_messages_are_left_to_celery(world: World, queue: Queue, all_stale: bool) -> None:
    """Of them it is counted how many there are, and where there are many they are dropped together."""
    ids = start_all(world)
    stale = ids if all_stale else ids[1:]
    world.store.database["decisions"].update_many({"_id": {"$in": stale}}, {"$set": {"pass": new_pass()}})
    result = run_one(world, queue, 2 * LEAST_SLOW)
    asked = [] if all_stale else [1]
    assert (result, queue.asked) == (Result.STALE_MESSAGE if all_stale else Result.FINISHED, asked)
    assert world.redis.llen("order") == TASKS - 1 - len(asked)
