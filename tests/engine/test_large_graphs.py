"""Large graphs: one applies for all, in few updates; whoever has the turn may end, and Redis may be away, or lie."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from recovery.engine import Applied, Ended, Outbox, Slot, read_each
from recovery.engine.apply import large_graphs
from recovery.engine.apply import outbox as outboxes
from recovery.engine.resources import Queueing
from recovery.errors import DamagedRecord
from recovery.queue import Turns
from recovery.queue.coordination import APPLY_KEY
from recovery.records import Graph, ProcessState
from recovery.stack.server_process import free_port
from tests.counting import failed_steps
from tests.world import World, arguments, check_quiet

LEAVES = 40


@pytest.fixture
def wide(world: World, monkeypatch: pytest.MonkeyPatch) -> str:
    """A process of which 40 tasks are queued, and whose graph is large. The outboxes' own threads do nothing."""
    monkeypatch.setattr(large_graphs, "LARGE_GRAPH", 100)
    monkeypatch.setattr(outboxes, "GATHER_DELAY", 600.0)
    leaf = world.app.actor("leaf")(lambda number: 60 // (number + 1))
    total = world.app.actor("total")(sum)
    kind = world.app.process("wide")(lambda: total.schedule([leaf.schedule(number) for number in range(LEAVES)]))
    process_id = world.start(kind)
    world.pump(serve={"wide": world.app.actors["wide"]})
    return process_id


def graph(world: World, process_id: str) -> Graph:
    found = world.store.graphs.get(process_id)
    assert found is not None
    return found


def left(world: World, process_id: str) -> int:
    """How many tasks are open; one waits for all others."""
    return len(graph(world, process_id).not_finished)


def knowing(world: World, process_id: str, turns: Turns | None = None) -> Outbox:
    """An outbox as in another pool process, which knows that this process's graph is large."""
    resources = world.app.resources
    if turns is not None:
        queueing = Queueing(resources.settings)
        queueing.turns = turns
        resources = replace(resources, queueing=queueing)
    made = Outbox(resources)
    made._large.note(process_id, large_graphs.LARGE_GRAPH + 1)
    return made


def run(world: World, outbox: Outbox, count: int) -> None:
    """Run so many of the leaves in a slot of this outbox."""
    slot = Slot(world.app.resources, outbox, world.app.actors, "w#1")
    for _ in range(count):
        message = world.pop(["leaf"])
        assert message is not None
        slot.run(world.app.actors["leaf"], *arguments(message))


def while_applying(monkeypatch: pytest.MonkeyPatch, does: Callable[[], Any]) -> None:
    """Have something done while the next apply is under way, once."""
    real = outboxes.apply

    def apply(*args: Any) -> Any:
        monkeypatch.setattr(outboxes, "apply", real)
        does()
        return real(*args)

    monkeypatch.setattr(outboxes, "apply", apply)


def apply_waiting(outbox: Outbox) -> None:
    """What the outbox's own thread does when all of it is due."""
    outbox._apply_groups(outbox._pop_all())


def waiting(outbox: Outbox) -> list[Ended]:
    """What waits there, of one process."""
    (found,) = outbox._waiting.values()
    return found.ended


def end(world: World, process_id: str) -> None:
    process = world.bring_to_end(process_id)
    assert (process.state, process.result) == ("finished", str(sum(60 // (n + 1) for n in range(LEAVES))))
    check_quiet(world, process_id)


def test_one_applies_for_all(world: World, wide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = appliers = [knowing(world, wide) for _ in range(8)]
    for one in appliers:
        run(world, one, 5)
    before, seen = graph(world, wide), []

    def the_others_hand_over() -> None:
        for one in others:
            one.flush()
        seen.append(graph(world, wide))

    while_applying(monkeypatch, the_others_hand_over)
    first.flush()
    assert seen == [before], "no other wrote it while the first did"
    after = graph(world, wide)
    assert after.version == before.version + 2, "five of its own, and those of the others at once"
    assert left(world, wide) == 1
    end(world, wide)


def test_who_has_the_turn_goes_on_after_a_pause(world: World, wide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Own tasks, which it knows, and others', which it reads."""
    for name in ("MIN_PAUSE", "MAX_PAUSE"):
        monkeypatch.setattr(large_graphs, name, 600.0)
    first, other = knowing(world, wide), knowing(world, wide)
    run(world, first, 10)
    run(world, other, 10)
    while_applying(monkeypatch, lambda: apply_waiting(other))
    apply_waiting(first)
    assert first._large.has_turns and not other._large.has_turns
    run(world, first, 10)
    run(world, other, 10)
    version = graph(world, wide).version
    for one in (first, other):
        apply_waiting(one)
    first._large.go_on()
    assert graph(world, wide).version == version, "it pauses"
    first._large.go_on(at_once=True)
    assert graph(world, wide).version == version + 2, "its own, and those that it read"
    assert left(world, wide) == 1
    first._large.go_on(at_once=True)
    assert not first._large.has_turns
    end(world, wide)


def test_who_had_the_turn_is_gone(world: World, wide: str) -> None:
    """What was handed over meanwhile is applied when it is overdue; the turn is another's after a while."""
    turns = Turns(world.settings.broker_url, lifetime=3.0)
    assert turns.join(wide, ["start"])
    one = knowing(world, wide, turns)
    version = graph(world, wide).version
    run(world, one, LEAVES)
    one.flush()
    assert graph(world, wide).version == version
    end(world, wide)


def test_a_turn_that_was_lost_and_taken_by_one_who_is_gone(
    world: World, wide: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = knowing(world, wide), knowing(world, wide)
    run(world, first, 20)
    run(world, other, 20)

    def the_other_takes_it_and_is_gone() -> None:
        world.redis.delete(APPLY_KEY.format(wide))
        monkeypatch.setattr(other._large, "_step", lambda *_: None)
        other.flush()

    while_applying(monkeypatch, the_other_takes_it_and_is_gone)
    first.flush()
    assert left(world, wide) == 1, "the first took out the other's, and applied them"
    end(world, wide)


def test_redis_is_away(world: World, wide: str) -> None:
    one = knowing(world, wide, Turns(f"redis://127.0.0.1:{free_port()}/0", 60.0))
    run(world, one, LEAVES)
    one.flush()
    assert left(world, wide) == 1
    end(world, wide)


def test_redis_goes_away_during_a_turn(world: World, wide: str) -> None:
    one = knowing(world, wide)
    run(world, one, 20)
    one._large._turns = Turns(world.settings.broker_url, 60.0)
    apply_waiting(one)
    run(world, one, 20)
    turn = large_graphs._Turn(busy=False, due=time.monotonic() + 600)
    one._large._mine[wide] = turn
    world.redis.lpush(APPLY_KEY.format(wide), "start")
    apply_waiting(one)
    one._large._turns = Turns(f"redis://127.0.0.1:{free_port()}/0", 60.0)
    one._large.go_on(at_once=True)
    assert left(world, wide) == 1, "what it knows is applied"
    assert not one._large.has_turns
    end(world, wide)


def test_what_somebody_put_into_the_list(world: World, wide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = knowing(world, wide)
    run(world, one, 20)
    waits, running = (min(graph(world, wide).links), max(graph(world, wide).not_finished))
    nonsense = [waits, running, "start", "no such task", b"\xff\xfe", "", "x" * 2_000_000]
    while_applying(monkeypatch, lambda: world.redis.lpush(APPLY_KEY.format(wide), *nonsense))
    one.flush()
    after = graph(world, wide)
    assert len(after.not_finished) == 21, "the 20 leaves that did not run, and who waits for them"
    assert not one._large.has_turns
    end(world, wide)


def test_a_failed_task_in_the_list_stays_open(world: World, wide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.app.actors["leaf"] = replace(world.app.actors["leaf"], function=lambda number: 1 // (number - 30))
    one, message = knowing(world, wide), None
    slot = Slot(world.app.resources, one, world.app.actors, "w#1")
    while not graph(world, wide).failed:
        message = world.pop(["leaf"])
        assert message is not None
        slot.run(world.app.actors["leaf"], *arguments(message))
    assert message is not None
    failed = arguments(message)[0].partition("/")[2]
    world.app.actors["leaf"] = replace(world.app.actors["leaf"], function=lambda number: 60 // (number + 1))
    other = knowing(world, wide)
    run(world, other, 2)
    before, after_it = (ended.task.task_id for ended in waiting(other))
    run(world, one, 1)
    while_applying(monkeypatch, lambda: world.redis.lpush(APPLY_KEY.format(wide), before, failed, after_it))
    one.flush()
    after = graph(world, wide)
    assert {before, after_it} <= set(after.finished)
    assert failed in after.not_finished and failed in after.failed and failed not in after.finished
    assert world.bring_to_end(wide).state == "broken"


def test_some_of_a_page_are_applied_before(world: World, wide: str) -> None:
    """Those that are not take one update, and those that are are looked at again."""
    one = knowing(world, wide)
    run(world, one, 10)
    (ended,) = one._pop_all()
    for some in (ended[:1], ended[3:4]):
        assert list(one.apply(some).values()) == [Applied.NOW]
    before = graph(world, wide)
    one.apply(ended)
    after = graph(world, wide)
    assert after.version == before.version + 1
    assert len(after.finished) == len(before.finished) + 8
    end(world, wide)


def test_one_that_can_not_be_read_holds_up_no_other(world: World, wide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = knowing(world, wide), knowing(world, wide)
    run(world, first, 1)
    run(world, other, LEAVES - 1)
    damaged: Sequence[Any] = waiting(other)
    key = damaged[3].decision.id
    spoilt = {"q": {"_id": key}, "u": {"$set": {"outcome.finishedAt": "yesterday"}}}
    world.store.database.command("update", "decisions", updates=[spoilt], bypassDocumentValidation=True)
    assert [one.decision.id for one in read_each(world.store, [key], lambda *_: None)] == []
    while_applying(monkeypatch, other.flush)
    first.flush()
    assert left(world, wide) == 2 and damaged[3].task.task_id in graph(world, wide).not_finished


@pytest.mark.parametrize("damaged", [[0], [7, 20], [LEAVES - 1]], ids=str)
def test_one_that_can_not_be_applied_holds_up_no_other(
    world: World, wide: str, monkeypatch: pytest.MonkeyPatch, damaged: list[int]
) -> None:
    """Of the page it is in, nor of those that are in the list by then: the turn goes on."""
    first, other = knowing(world, wide), knowing(world, wide)
    run(world, first, 10)
    run(world, other, LEAVES - 10)
    both = [ended for one in (first, other) for ended in waiting(one)]
    spoilt = {both[place].task.task_id for place in damaged}
    real, hand_over = outboxes.apply, [other.flush]

    def apply(resources: Any, group: Sequence[Ended], take: Any = None) -> Any:
        while hand_over:
            hand_over.pop()()
        if any(one.task.task_id in spoilt for one in group):
            raise DamagedRecord("a decision", "it can't be applied")
        return real(resources, group, take)

    before = failed_steps()
    monkeypatch.setattr(outboxes, "apply", apply)
    first.flush()
    assert spoilt <= set(graph(world, wide).not_finished) and left(world, wide) == 1 + len(spoilt)
    assert failed_steps() == before + len(spoilt) and not first._large.has_turns
    monkeypatch.setattr(outboxes, "apply", real)
    end(world, wide)


def test_of_what_waited_together_a_damaged_one_holds_up_no_other(
    world: World, wide: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a graph that is not large as well."""
    one = Outbox(world.app.resources)
    run(world, one, LEAVES)
    (together,) = one._pop_all()
    real, before = outboxes.apply, failed_steps()

    def apply(resources: Any, group: Sequence[Ended], take: Any = None) -> Any:
        if any(together[3] is one for one in group):
            raise DamagedRecord("a decision", "it can't be applied")
        return real(resources, group, take)

    with monkeypatch.context() as patched:
        patched.setattr(outboxes, "apply", apply)
        one._apply(together)
        assert left(world, wide) == 2 and together[3].task.task_id in graph(world, wide).not_finished
        assert failed_steps() == before + 1
        with pytest.raises(DamagedRecord):
            one.apply(together[3:4])
    end(world, wide)


def test_steps_one_after_the_other_do_not_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a large graph that nobody else writes: each step, which schedules the next, is applied when it has ended."""
    monkeypatch.setattr(large_graphs, "LARGE_GRAPH", 100)
    monkeypatch.setattr(outboxes, "GATHER_DELAY", 600.0)
    step = world.app.actor("step")(lambda left: step.schedule(left - 1) if left else "end")
    process_id = world.start(world.app.process("steps")(lambda: step.schedule(50)))
    slot = Slot(world.app.resources, world.app.outbox, world.app.actors, "w#1")
    while world.process(process_id).state is ProcessState.RUNNING:
        while message := world.pop(world.app.actors):
            slot.run(world.app.actors[message["headers"]["task"]], *arguments(message))
        world.app.outbox.flush()
    assert world.app.result(process_id, timeout=0) == "end"
    assert graph(world, process_id).version == 52
    assert not world.app.outbox._large.has_turns
    check_quiet(world, process_id)
