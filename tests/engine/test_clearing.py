"""Deadlines are taken off what is proven alone: what nothing could be applied to is so once its process goes on without
it."""

from __future__ import annotations

from recovery.engine.apply.clearing import Clearing
from recovery.engine.steps import Applied, Effect, Ended
from recovery.records import Outcome
from recovery.store.concerns import committed
from tests.store.writing import get
from tests.world import World, arguments


def test_what_was_stale_rests_once_its_process_is_over_or_in_another_epoch(world: World) -> None:
    process_id = world.start(world.app.process("order")(lambda: 1))
    message = world.pop(["order"])
    assert message is not None
    claimed = world.store.decisions.claim("order", *arguments(message), "w#1", 60)
    task = world.store.tasks.get(f"{process_id}/start")
    assert claimed is not None and task is not None
    outcome = Outcome(pass_key=str(claimed.pass_key), value="1")
    assert world.store.decisions.finish(claimed, outcome, (), accept_first=True, worker="w#1", apply_timeout=60)
    committed(world.store.database["graphs"]).delete_one({"_id": process_id})
    clearing = Clearing(world.app.resources)
    clearing.note([Ended(task, claimed.evolve(outcome=outcome))], Effect(Applied.STALE))
    clearing.write()
    assert get(world.store, claimed.id).recovery_time is not None, "its graph may be made again"
    committed(world.store.database["processes"]).update_one({"_id": process_id}, {"$set": {"epoch": 1}})
    clearing.note([Ended(task, claimed.evolve(outcome=outcome))], Effect(Applied.STALE))
    clearing.write()
    assert get(world.store, claimed.id).recovery_time is None
