"""A process of the pool that ends is noticed at once, by real processes in a real event loop."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu.asynchronous import Hub

from recovery.worker.slots import pools as exits
from recovery.worker.slots.pools import Exits
from tests.waiting import wait_until

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]
STARTS_ANOTHER = [
    sys.executable,
    "-c",
    "import os, time\nif os.fork() == 0: time.sleep(600)\nprint('started', flush=True)\ntime.sleep(600)",
]


class Pool:
    """As much of a pool as is watched: processes, of which those that can be waited for are taken out."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        self.ended: list[int] = []

    def start(self, command: list[str] = SLEEPS) -> subprocess.Popen[str]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.processes.append(process)
        return process

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def maintain(self) -> None:
        for process in [one for one in self.processes if one.poll() is not None]:
            self.processes.remove(process)
            self.ended.append(process.pid)


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool()
    try:
        yield pool
    finally:
        for process in pool.processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    try:
        yield hub
    finally:
        hub.close()


def run_until(hub: Hub, is_so, within: float) -> None:
    """Run the loop until something is so."""
    began = time.monotonic()
    hub.call_later(within, hub.stop)
    while not is_so():
        assert time.monotonic() - began < within, "not within its time"
        hub.run_once()


def test_one_that_is_killed_is_noticed_without_a_look(hub: Hub, pool: Pool, monkeypatch) -> None:
    monkeypatch.setattr(exits, "LOOK_EVERY", 60.0)
    first, second = pool.start(), pool.start()
    Exits(hub, pool.pids, pool.maintain).start()
    for process in (first, second):
        process.kill()
        run_until(hub, lambda process=process: pool.ended[-1:] == [process.pid], within=10)
    assert pool.ended == [first.pid, second.pid]


def test_what_it_had_started_does_not_keep_it_alive(hub: Hub, pool: Pool, monkeypatch) -> None:
    """A pipe that it holds open is held by that one, too: by it nothing would be noticed."""
    monkeypatch.setattr(exits, "LOOK_EVERY", 60.0)
    process = pool.start(STARTS_ANOTHER)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    Exits(hub, pool.pids, pool.maintain).start()
    process.kill()
    try:
        run_until(hub, lambda: pool.ended == [process.pid], within=10)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the other one


def test_what_comes_in_its_place_is_watched(hub: Hub, pool: Pool, monkeypatch) -> None:
    monkeypatch.setattr(exits, "LOOK_EVERY", 60.0)
    place = [pool.start()]

    def maintain() -> None:
        pool.maintain()
        if not pool.processes:
            place.append(pool.start())

    Exits(hub, pool.pids, maintain).start()
    for count in (1, 2, 3):
        place[-1].kill()
        run_until(hub, lambda count=count: len(pool.ended) == count, within=10)
    assert pool.ended == [process.pid for process in place[:3]]


def test_the_pool_looks_only_once_the_loop_runs(hub: Hub, pool: Pool, monkeypatch) -> None:
    """Before that it can't put another process into the place of one that is gone."""
    monkeypatch.setattr(exits, "LOOK_EVERY", 0.1)
    looks = list[float]()
    Exits(hub, pool.pids, lambda: looks.append(time.monotonic())).start()
    assert looks == []
    run_until(hub, lambda: looks, within=10)


def test_one_that_the_pool_leaves_costs_no_cpu(hub: Hub, pool: Pool, monkeypatch) -> None:
    """A pool that closes waits for none, and what ended stays to be waited for."""
    monkeypatch.setattr(exits, "LOOK_EVERY", 60.0)
    calls = list[float]()
    process = pool.start()
    Exits(hub, pool.pids, lambda: calls.append(time.monotonic())).start()
    process.kill()
    run_until(hub, lambda: calls, within=10)
    turns = 0
    while hub.poller.poll(0) and turns < 10:
        hub.run_once()
        turns += 1
    assert turns < 10
    assert len(calls) == 1


def test_a_copy_of_its_descriptor_wakes_nobody(hub: Hub, pool: Pool, monkeypatch) -> None:
    """A process that the pool forks later has copies of all."""
    monkeypatch.setattr(exits, "LOOK_EVERY", 60.0)
    process = pool.start()
    Exits(hub, pool.pids, pool.maintain).start()
    copy = os.dup(*hub.readers)
    try:
        process.kill()
        run_until(hub, lambda: pool.ended == [process.pid], within=10)
        assert not [event for event in hub.poller.poll(0) or () if event[0] not in hub.readers]
    finally:
        os.close(copy)


def test_a_loop_that_begins_anew_watches_as_before(hub: Hub, pool: Pool) -> None:
    watching = Exits(hub, pool.pids, pool.maintain)
    process = pool.start()
    watching.look()
    hub.reset()
    watching.look()
    assert len(hub.readers) == 1
    process.kill()
    run_until(hub, lambda: pool.ended == [process.pid], within=10)
    assert not hub.readers


def test_a_loop_that_begins_waits_for_no_look(hub: Hub, pool: Pool, monkeypatch) -> None:
    """Who ended while the broker was away is noticed at once, and so is who ends later."""
    monkeypatch.setattr(exits, "LOOK_EVERY", 60.0)
    watching = Exits(hub, pool.pids, pool.maintain)
    first, second = pool.start(), pool.start()
    watching.start()
    hub.reset()
    first.kill()
    wait_until(lambda: ended(first), 10, "its end")
    watching.loop_begins()
    run_until(hub, lambda: pool.ended == [first.pid], within=10)
    second.kill()
    run_until(hub, lambda: pool.ended == [first.pid, second.pid], within=10)


def ended(process: subprocess.Popen[str]) -> bool:
    """Whether it can be waited for."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def test_no_descriptor_stays_open(hub: Hub, pool: Pool) -> None:
    watching = Exits(hub, pool.pids, pool.maintain)
    before = descriptors_of_processes()  # of tests before this one
    for _ in range(3):
        process = pool.start()
        watching.look()
        assert len(descriptors_of_processes()) == len(before) + 1
        process.kill()
        run_until(hub, lambda process=process: pool.ended[-1:] == [process.pid], within=10)
        assert descriptors_of_processes() == before


def descriptors_of_processes() -> set[str]:
    """Those that this process holds."""
    found = set()
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found |= {one.name} if "pidfd" in str(one.readlink()) else set()
    return found


def test_without_descriptors_it_looks_often(hub: Hub, pool: Pool, monkeypatch) -> None:
    def refused(_pid: int) -> int:
        raise PermissionError("as in a container that forbids it")

    monkeypatch.setattr(os, "pidfd_open", refused)
    monkeypatch.setattr(exits, "LOOK_EVERY", 60.0)
    process = pool.start()
    Exits(hub, pool.pids, pool.maintain).start()
    process.kill()
    run_until(hub, lambda: pool.ended == [process.pid], within=10)
