"""Deadlines are taken off what is proven alone: what nothing could be applied to is so once its process goes on without
it."""

from __future__ import annotations

from recovery.engine.apply.apply import Effect
from recovery.engine.apply.clearing import Clearing
from recovery.engine.steps import Applied, Ended
from recovery.records import Outcome
from recovery.store.concerns import committed
from tests.store import single
from tests.store.writing import get
from tests.world import World, arguments


def test_what_was_stale_rests_once_its_process_is_over_or_in_another_epoch(world: World) -> None:
    process_id = world.start(world.app.process("order")(lambda: 1))
    message = world.pop(["order"])
    assert message is not None
    claimed = single.claim(world.store, "order", *arguments(message), "w#1", 60)
    task = world.store.tasks.get(f"{process_id}/start")
    assert claimed is not None and task is not None
    outcome = Outcome(pass_key=str(claimed.pass_key), value="1")
    assert single.finish(world.store, claimed, outcome, (), accept_first=True, worker="w#1", apply_timeout=60)
    committed(world.store.database["graphs"]).delete_one({"_id": process_id})
    clearing = Clearing(world.app.resources)
    clearing.note(Effect([Ended(task, claimed.evolve(outcome=outcome))], Applied.STALE))
    clearing.write()
    assert get(world.store, claimed.id).recovery_time is not None, "its graph may be made again"
    committed(world.store.database["processes"]).update_one({"_id": process_id}, {"$set": {"epoch": 1}})
    clearing.note(Effect([Ended(task, claimed.evolve(outcome=outcome))], Applied.STALE))
    clearing.write()
    assert get(world.store, claimed.id).recovery_time is None
