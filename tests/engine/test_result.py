"""Asking for a process's result: it waits as long as it is told to, and says how the process ended."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from recovery import Recovery
from recovery.engine.end.results import pause_after
from recovery.errors import ProcessBroken, ResultTimeout
from recovery.records import ErrorInfo, Process, ProcessState
from tests.store.writing import put
from tests.world import World


@pytest.fixture(autouse=True)
def actors(app: Recovery) -> None:
    @app.process()
    def order(number: int | None) -> int | None:
        return number


def test_it_times_out_and_may_be_asked_again(world: World) -> None:
    process_id = world.start("order", 1)
    began = time.monotonic()
    for timeout in (0, 0.1):
        with pytest.raises(ResultTimeout, match=f"process {process_id} has not ended within {timeout:g} s; it goes on"):
            world.app.result(process_id, timeout=timeout)
    assert 0.1 <= time.monotonic() - began < 5
    world.pump()
    assert world.app.result(process_id) == 1
    assert world.app.result(process_id, timeout=0) == 1


def test_it_waits_for_the_end(world: World) -> None:
    process_id = world.start("order", 1)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(world.app.result, process_id, 20)
        assert not asked.done()
        world.pump()
        assert asked.result() == 1


def test_an_end_is_seen_soon_for_few_reads() -> None:
    reads, at = 0, 0.0
    while at < 60:
        pause = pause_after(at)
        assert pause <= max(0.01, min(0.1 * at, 0.25)), "how late the end of so long a process is seen at most"
        reads, at = reads + 1, at + pause
    assert reads < 300


def test_nothing_is_a_result_too(world: World) -> None:
    assert world.run(world.app.find_actor("order"), None) is None


def test_broken(world: World) -> None:
    error = ErrorInfo(kind="KeyError", message="'x'", task="t1", actor="add")
    put(world.store, Process(id="p", type="order", args="", state=ProcessState.BROKEN, error=error))
    with pytest.raises(ProcessBroken) as broken:
        world.app.result("p")
    assert str(broken.value) == "process p, task t1: KeyError: 'x'"
    assert (broken.value.process_id, broken.value.task, broken.value.kind) == ("p", "t1", "KeyError")


def test_aborted(world: World) -> None:
    put(world.store, Process(id="q", type="order", args="", state=ProcessState.ABORTED))
    with pytest.raises(ProcessBroken, match="process q: aborted: ended without a result"):
        world.app.result("q")
