"""Records that outgrow MongoDB's documents break their process with the reason, instead of being tried for ever."""

from __future__ import annotations

from typing import Any

from recovery.records.values import MAX_BYTES
from tests.world import World


def test_a_graph_that_is_full(world: World) -> None:
    @world.app.actor()
    def leaf(number: int) -> int:
        return number

    @world.app.process()
    def fan() -> Any:
        return [leaf.schedule(number) for number in range(50)]

    process_id = world.start(fan)
    filler = "x" * (16 * 1024 * 1024 - 800)
    world.store.database["graphs"].update_one({"_id": process_id}, {"$set": {"filler": filler}})
    error = world.bring_to_end(process_id).error
    assert error is not None
    assert error.kind == "TooLarge"
    assert "graph" in error.message


def test_a_result_that_is_put_together_from_large_parts(world: World) -> None:
    @world.app.actor()
    def large() -> str:
        return "x" * (MAX_BYTES // 2)

    @world.app.process()
    def three() -> Any:
        return [large.schedule() for _ in range(3)]

    error = world.bring_to_end(world.start(three)).error
    assert error is not None
    assert error.kind == "TooLarge"
    assert "result" in error.message
