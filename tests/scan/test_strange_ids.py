"""Decisions whose ids are none of ours, which a client can insert: they are named, no worker is handed them, and
nothing else is held up. The id "" was once that of a record which was not there, and an update of it the majority's
barrier."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recovery.records import Decision, DecisionState, ProcessState
from recovery.records.ids import new_pass
from recovery.rules import Rule
from recovery.scan import DecisionScanner
from tests.queues import polled_and_empty
from tests.store.writing import contents, get, put
from tests.world import World

IDS = ["", "p/t", "of another form"]
DAY = timedelta(days=1)


@pytest.mark.parametrize("state", [state for state in DecisionState if state is not DecisionState.WORKING])
def test_a_decision_without_an_id_does_not_stop_what_waits_for_a_majority(world: World, state: DecisionState) -> None:
    """Claims and their ends are confirmed, each task is claimed once, and that record keeps its deadline."""
    app, later = world.app, world.store.now() + DAY
    double = app.actor("double")(lambda number: 2 * number)
    app.process("order")(lambda: double.schedule(4))
    put(world.store, Decision(id="", actor="away", state=state, pass_key=new_pass(), recovery_time=later, eta=later))
    before = contents(world.store, "decisions")[""]
    process_id = world.start("order")
    world.store.catch_up(5)
    world.pump()
    world.store.catch_up(5)
    process = world.process(process_id)
    assert (process.state, process.result) == (ProcessState.FINISHED, "8")
    after = contents(world.store, "decisions")
    assert after.pop("") == before
    assert len(after) == 2 and {one["attempts"] for one in after.values()} == {1}


@pytest.mark.parametrize("overdue", [True, False])
@pytest.mark.parametrize("key", IDS)
def test_a_queued_one_is_damaged_and_never_requeued(world: World, key: str, overdue: bool) -> None:
    world.app.process("order")(lambda: "done")
    world.tell()
    now, pushed = world.store.now(), new_pass()
    deadline = now - timedelta(seconds=1) if overdue else now + DAY
    put(world.store, Decision(
        id=key, actor="order", state=DecisionState.QUEUED, pass_key=pushed, queued_at=now - timedelta(minutes=1),
        recovery_time=deadline,
    ))  # fmt: skip
    for _ in range(2):
        polled_and_empty(world.store, "order")
        result = DecisionScanner(world.app.resources, world.app.outbox).run_once()
        assert result.error is None and result.repaired[Rule.MESSAGE_LOST] == 0
    assert get(world.store, key).pass_key == pushed and not world.redis.exists("order")
    moved = get(world.store, key).recovery_time
    assert moved is not None and (moved > now + DAY / 2 if overdue else moved == deadline)
