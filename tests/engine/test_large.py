"""Values that are large together: what they come to is known before they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.collection import Collection

from recovery import ProcessBroken, Recovery
from recovery.engine import Resources, finish_process
from recovery.engine.actors.resolve import MAX_CALL_BYTES, arguments, gather, text_size, values_of
from recovery.errors import TooLarge
from recovery.records import Decision, DecisionState, Graph, Outcome, Process, ProcessState, Task
from recovery.records.ids import record_id
from recovery.records.values import dump, promise_bytes
from recovery.settings import Settings
from tests.counting import failed_steps
from tests.memory import MB, peak_growth
from tests.store.writing import put
from tests.world import World

PROCESS = "p"


def finished(task: str, value: str, *waits: str) -> Decision:
    outcome = Outcome(pass_key="pass", value=value, waits=waits)
    return Decision(id=record_id(PROCESS, task), actor="part", state=DecisionState.FINISHED, outcome=outcome)


def promise(task: str) -> str:
    return f'{{"$promise":"{task}"}}'


def called_with(text: str, *deps: str) -> Task:
    return Task(id=record_id(PROCESS, "joined"), actor="join", args=f"[[{text}],{{}}]", deps=deps)


def promising(world: World, *parts: str, times: int = 1, args: str = "[[],{}]") -> None:
    """A process all of whose tasks are finished, and whose start task's value promises these parts."""
    now = world.store.now()
    names = [f"c{number}" for number in range(len(parts))]
    value = f"[{','.join(map(promise, names * times))}]"
    put(
        world.store,
        Process(id=PROCESS, type="order", args=args, started_at=now, recovery_time=now),
        Graph(id=PROCESS, finished=("start", *names), touched_at=now, recovery_time=now),
        finished("start", value, *names),
    )
    for name, part in zip(names, parts, strict=True):
        put(world.store, finished(name, part))


def join_and_finish(settings: Settings) -> Iterator[tuple[str, bool | None]]:
    resources = Resources.connect(settings)
    resources.store.now()
    yield "", None
    try:
        arguments(resources.store, called_with(promise("start"), "start"))
    except TooLarge as error:
        yield str(error), finish_process(resources, PROCESS, 0)


def text(length: int) -> str:
    return f'"{"x" * (length - 2)}"'


@pytest.mark.thorough
def test_200_mb_of_promised_values_break_the_process_unread(world: World) -> None:
    promising(world, *[text(4 * MB)] * 50)
    (told, broken), growth = peak_growth(join_and_finish, world.settings)
    assert told.startswith("209,715,") and broken
    assert growth < 50 * MB, f"{growth / MB:.0f} MB more at the peak"
    process = world.process(PROCESS)
    assert (process.state, process.error and process.error.kind) == (ProcessState.BROKEN, "TooLarge")


def test_what_is_promised_many_times_is_not_written_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    promising(world, text(MB), times=1000)
    monkeypatch.delattr("recovery.records.values.dump")  # it would write 1 GB
    assert finish_process(world.app.resources, PROCESS, 0)
    with pytest.raises(ProcessBroken, match="the result of the process is over 16 MB"):
        world.app.result(PROCESS, timeout=0)


@pytest.mark.parametrize(("over", "state"), [(0, ProcessState.FINISHED), (1, ProcessState.BROKEN)])
@pytest.mark.parametrize("times", [1, 2])
def test_the_limit_counts_to_the_byte(
    world: World, monkeypatch: pytest.MonkeyPatch, over: int, state: ProcessState, times: int
) -> None:
    args, part = "[[1],{}]", text(30_000)
    whole = len(f"[{','.join([part] * times)}]") + len(args)
    monkeypatch.setattr("recovery.records.values.MAX_BYTES", whole - over)
    promising(world, part, times=times, args=args)
    finish_process(world.app.resources, PROCESS, 0)
    assert world.process(PROCESS).state is state


def test_small_and_large_values_come_by_one_query_and_two(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [str(number) for number in range(50)] + [text(MB // 4)] * 3
    promising(world, *parts)
    find, queries = Collection.find, list[str]()
    monkeypatch.setattr(Collection, "find", lambda self, *args: [queries.append(self.name), find(self, *args)][1])
    outcomes = gather(world.store, PROCESS, {"start": None}, MAX_CALL_BYTES)
    value = values_of(PROCESS, outcomes)["start"]
    assert value == [*range(50), *["x" * (MB // 4 - 2)] * 3]
    assert text_size(promise("start"), outcomes) == len(dump(value))
    assert queries == ["decisions"] * 3, "a layer, what it promises, and what of that is large"


@pytest.mark.parametrize("change", [{"$unset": {"outcome": ""}}, {"$set": {"outcome.pass": "another"}}], ids=str)
def test_a_large_value_that_is_another_by_now_is_not_taken(
    world: World, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    promising(world, text(2 * MB))
    decisions = world.store.decisions
    read = decisions.values

    def changed(passes: dict[str, str]) -> Any:
        world.store.database["decisions"].update_one({"_id": record_id(PROCESS, "c0")}, change)
        return read(passes)

    monkeypatch.setattr(decisions, "values", changed)
    before = failed_steps()
    assert finish_process(world.app.resources, PROCESS, 0) is None
    assert failed_steps() == before + 1, "that task c0 has no value any more is told"
    assert world.process(PROCESS).state is ProcessState.RUNNING


def test_a_task_whose_arguments_promise_too_much_fails(app: Recovery, world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr("recovery.engine.actors.resolve.MAX_CALL_BYTES", 10_000)
    part = app.actor("part")(lambda: "x" * 4000)
    gather_all = app.actor("gather")(len)
    order = app.process("order")(lambda: gather_all.schedule([part.schedule() for _ in range(3)]))
    process_id = world.start(order)
    world.bring_to_end(process_id)
    with pytest.raises(ProcessBroken, match=r"TooLarge: arguments of gather: 12,006 bytes .* over the limit of 10,000"):
        app.result(process_id, timeout=0)


def test_a_value_that_is_promised_many_times_counts_as_often(world: World) -> None:
    """It is in memory once, but whoever returns it, or passes it on, writes it as often."""
    promising(world, text(4 * MB))
    assert len(arguments(world.store, called_with(",".join([promise("c0")] * 15), "c0"))[0]) == 15
    with pytest.raises(TooLarge, match=r"^71,303,\d{3} bytes as JSON with all that is promised, over the limit of"):
        arguments(world.store, called_with(",".join([promise("c0")] * 17), "c0"))


def doubling(layers: int, deepest: Decision) -> list[Decision]:
    """Each of these values promises the next one twice."""
    names = [f"c{number}" for number in range(layers)]
    twice = [
        finished(name, f"[{promise(inner)},{promise(inner)}]", inner)
        for name, inner in zip(names, [*names[1:], deepest.task_id], strict=True)
    ]
    return [*twice, deepest]


@pytest.mark.parametrize("layers", [25, 500])
def test_promises_that_double_in_each_layer_are_never_written_out(world: World, layers: int) -> None:
    for decision in doubling(layers, finished("last", text(100))):
        put(world.store, decision)
    with pytest.raises(TooLarge, match=r"bytes as JSON with all that is promised, over the limit"):
        arguments(world.store, called_with(promise("c0"), "c0"))


def test_a_promise_takes_what_its_text_does() -> None:
    assert promise_bytes("abc") == len(promise("abc"))


@pytest.mark.thorough
def test_more_keys_than_a_command_may_hold(world: World) -> None:
    """300,000 keys are over 16 MB, and so would be the query for them all at once."""
    keys = [record_id(PROCESS * 32, f"{number:016}") for number in range(300_000)]
    assert world.store.decisions.outcomes(keys) == {}
    assert world.store.tasks.present(keys) == set()
    assert world.store.decisions.queued_passes(keys) == {}
    assert (
        world.store.graphs.get_many(keys) == world.store.graphs.sizes(keys) == world.store.graphs.versions(keys) == {}
    )
    assert len(world.store.graphs.absent(keys)) == len(keys)
    assert world.store.graphs.complete(keys) == world.store.processes.committed_over(keys) == []
    assert world.store.processes.ended(keys) == world.store.processes.committed_epochs(keys) == {}


def test_a_result_is_polled_without_the_arguments(world: World) -> None:
    promising(world, "1", args=text(MB))
    (process,) = world.store.processes.ended([PROCESS]).values()
    assert (process.args, process.result) == ("", None)
    assert finish_process(world.app.resources, PROCESS, 0)
    assert world.app.result(PROCESS, timeout=0) == [1]
