"""What slots write of themselves and their parent reads: of processes by shared memory, of threads as it is."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import billiard
import pytest

from recovery.records import Decision
from recovery.store.views.lifeline_queries import Claim
from recovery.worker.slots.board import CELL, LONGEST_NAME, PLACES, Cell, SharedBoard, ThreadBoard
from tests.waiting import wait_until

fork = billiard.get_context("fork")


def decision(number: int = 1, actor: str = "render") -> Decision:
    return Decision(id=f"{'f' * 32}/{number}", actor=actor, pass_key="p" * 32, attempts=number)


class Pool:
    """Processes of a pool: each runs `work(board)` in its place."""

    def __init__(self) -> None:
        self.processes: dict[int, Any] = {}
        self.board = SharedBoard(lambda: {place: one.pid for place, one in self.processes.items()}, lambda: 3)

    def start(self, place: int, work: Callable[[SharedBoard], None]) -> int:
        process = fork.Process(target=work, args=(self.board,))
        process.index = place
        process.start()
        self.processes[place] = process
        return int(process.pid)

    def cell(self) -> Cell | None:
        cells = self.board.cells()
        return cells[0] if cells else None

    def end(self) -> None:
        for process in self.processes.values():
            os.kill(process.pid, signal.SIGKILL)
            process.join()


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.end()


def enters(board: SharedBoard) -> None:
    board.enter(decision(3), 5.0)
    Event().wait()


def test_the_parent_reads_what_its_processes_run(pool: Pool) -> None:
    pids = {place: pool.start(place, enters) for place in (0, 7, PLACES - 1)}
    cells = wait_until(lambda: found if len(found := pool.board.cells()) == 3 else None, 10, "three cells")
    assert {cell.place: cell.pid for cell in cells} == pids
    assert {(cell.actor, cell.claim, cell.timeout) for cell in cells} == {
        ("render", Claim(f"{'f' * 32}/3", "p" * 32, 3), 5.0)
    }
    assert all(pool.board.still(cell) for cell in cells)
    assert pool.board.slots() == 3


def test_who_moves_on_is_another_call(pool: Pool) -> None:
    """Of the same task, too."""
    told = fork.Event()

    def enters_twice(board: SharedBoard) -> None:
        board.enter(decision(), 5.0)
        told.wait()
        board.leave()
        board.enter(decision(), 5.0)
        Event().wait()

    pool.start(0, enters_twice)
    first = wait_until(pool.cell, 10, "a cell")
    told.set()
    wait_until(lambda: not pool.board.still(first), 10, "the second call")
    second = wait_until(pool.cell, 10, "its cell")
    assert second.claim == first.claim and second.generation > first.generation


def test_what_an_actor_forked_does_not_leave_for_it(pool: Pool) -> None:
    left = fork.Event()

    def forks(board: SharedBoard) -> None:
        board.enter(decision(), 5.0)
        if not os.fork():
            board.leave()
            left.set()
            os._exit(0)
        Event().wait()

    pool.start(0, forks)
    assert left.wait(10)
    assert pool.cell() is not None


def test_a_cell_of_a_process_that_died_is_nobodys(pool: Pool) -> None:
    """Until its successor in the same place writes over it; whose calls go on being counted."""
    pid = pool.start(0, enters)
    first = wait_until(pool.cell, 10, "a cell")
    os.kill(pid, signal.SIGKILL)
    pool.processes.pop(0).join()
    pool.start(0, lambda _: Event().wait() and None)
    assert pool.cell() is None and not pool.board.still(first)
    pool.end()
    pool.start(0, enters)
    assert wait_until(pool.cell, 10, "a cell").generation > first.generation


def test_what_is_half_written_is_passed_over(pool: Pool) -> None:
    pool.start(0, enters)
    wait_until(pool.cell, 10, "a cell")
    memory = pool.board._memory
    whole = bytes(memory[:CELL])
    for place in range(len(whole.rstrip(b"\0"))):
        memory[:CELL] = whole
        memory[place] ^= 0xFF
        assert pool.cell() is None, place
    memory[:CELL] = whole
    assert pool.cell() is not None


@pytest.mark.parametrize("name", ["é" * 300, "😀" * 300, "\x01" * 300, "x" * 5000], ids=["é", "smile", "control", "x"])
def test_names_that_are_longer_than_a_cell_are_cut(pool: Pool, name: str) -> None:
    def enters_it(board: SharedBoard) -> None:
        board.enter(decision(actor=name), 5.0)
        Event().wait()

    pool.start(0, enters_it)
    assert wait_until(pool.cell, 10, "a cell").actor == name[:LONGEST_NAME]


def test_who_has_no_place_is_not_on_it(pool: Pool) -> None:
    """This process, and those past the last place."""
    pool.board.enter(decision(), 5.0)
    pool.board.leave()
    pool.start(PLACES, enters)
    assert pool.board.cells() == []


def takes(board: SharedBoard) -> None:
    board.enter(decision(), 5.0)
    while board.takes_more:
        Event().wait(0.01)
    board.leave()


def test_processes_are_told_that_they_take_no_more(pool: Pool) -> None:
    pool.start(1, takes)
    wait_until(lambda: pool.cell() is not None, 10, "its cell")
    pool.board.take_no_more()
    wait_until(lambda: pool.cell() is None, 10, "its end")


def test_threads_are_told_that_they_take_no_more() -> None:
    board = ThreadBoard(lambda: 1)
    assert board.takes_more
    board.take_no_more()
    assert not board.takes_more


def test_threads() -> None:
    board = ThreadBoard(lambda: 3)
    with ThreadPoolExecutor(3) as threads:
        go, inside = Event(), [Event() for _ in range(3)]

        def run(number: int) -> None:
            board.enter(decision(number), 5.0)
            inside[number].set()
            go.wait(10)
            board.leave()

        for number in range(3):
            threads.submit(run, number)
        assert all(event.wait(10) for event in inside)
        cells = board.cells()
        assert {cell.claim.attempts for cell in cells} == {0, 1, 2} and board.slots() == 3
        assert len({(cell.place, cell.generation) for cell in cells}) == 3 and all(map(board.still, cells))
        go.set()
    assert board.cells() == [] and not any(map(board.still, cells))
