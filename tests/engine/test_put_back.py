"""Messages that a slot took by itself, and did not begin since a server failed: they are the next of their queue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recovery.engine import Intake, Pace, Slot
from recovery.errors import StoreUnavailable
from recovery.queue import MessageId, parse_id
from recovery.records.ids import new_pass
from recovery.store.lifecycle.decision_queries import DecisionQueries
from recovery.store.lifecycle.decisions import Decisions
from tests.world import World

TASKS = 4
NOT_CLAIMED = 3
"""Of the single messages the one that the batch does not claim, and looks at again."""


def queued(world: World) -> list[MessageId]:
    """What lies in the queue, the next one first."""
    texts: Any = world.redis.lrange("order", 0, -1)
    found = [parse_id(json.loads(text)["headers"]["id"]) for text in reversed(texts)]
    return [one for one in found if one is not None]


def away(*_: Any, **__: Any) -> Any:
    raise StoreUnavailable("away")


@pytest.mark.parametrize("fails", ["claim", "look", "alone"])
def test_what_was_not_begun_is_put_back(world: World, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """Two messages of one task, of which one is stale, and those of others: each failure leaves other messages."""
    world.app.process("order")(lambda number: number)
    world.tell()
    for number in range(TASKS):
        world.start("order", number)
    first, twice, *others = messages = queued(world)
    world.redis.delete("order")
    stale = MessageId(twice.decision_id, new_pass(), None)
    intake = Intake(lambda *_: [twice, stale, *others], Pace(64))
    intake.pace.note("order", 0.001)
    slot = Slot(world.app.resources, world.app.outbox, world.app.actors, "w#1", intake=intake)
    if fails == "claim":
        monkeypatch.setattr(Decisions, "claim", away)
    elif fails == "look":
        real = Decisions.claim

        def claim(store: Any, actor: str, passes: dict[str, str], *limits: Any) -> Any:
            left_out = messages[NOT_CLAIMED].decision_id
            return real(store, actor, {key: held for key, held in passes.items() if key != left_out}, *limits)

        monkeypatch.setattr(Decisions, "claim", claim)
        monkeypatch.setattr(DecisionQueries, "queued_passes", away)
    else:
        claim_many = Decisions.claim

        def not_alone(store: Any, actor: str, passes: dict[str, str], *limits: Any) -> Any:
            return claim_many(store, actor, passes, *limits) if len(passes) > 1 else away()

        monkeypatch.setattr(Decisions, "claim", not_alone)
    with pytest.raises(StoreUnavailable):
        slot.run(world.app.actors["order"], first.decision_id, first.pass_key)
    left = {
        "claim": {*messages, stale},
        "look": {twice, stale, messages[NOT_CLAIMED]},
        "alone": {twice, stale},
    }[fails]
    there = {(one.decision_id, one.pass_key) for one in queued(world)}
    assert there >= {(one.decision_id, one.pass_key) for one in left}
    assert fails in ("claim", "alone") or len(there) == len(left), "what may have been claimed is requeued as well"
    monkeypatch.undo()
    for one in messages:
        process_id = one.decision_id.partition("/")[0]
        assert world.bring_to_end(process_id).state == "finished"
