"""Workers and beats whose clocks are wrong. Deadlines are the database's, so nothing comes of it."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from recovery.settings import load
from recovery.stack import Stack
from tests.cluster.conftest import Cluster
from tests.cluster.storm import Storm
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

PROCESSES = 6
HOUR = 3600
AHEAD, BEHIND = 600, -600
Shifted = Callable[[int], Mapping[str, str]]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """What is preloaded to shift a process's clock."""
    compiler, library = shutil.which("cc"), tmp_path / "clock.so"
    if compiler is None:
        pytest.skip("needs a C compiler (cc): a clock is shifted by a preloaded library")
    source = Path(__file__).with_name("shifted_clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.fixture
def shifted(library: Path) -> Shifted:
    """Gives the environment of a process whose clock is off by so many seconds."""
    return lambda seconds: {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(seconds)}


class Stepping:
    """A cluster whose MongoDB's clock can be set while it runs."""

    def __init__(self, stack: Stack, shift: Path, folder: Path) -> None:
        self._shift = shift
        settings = load(mongo_uri=stack.mongo_uri, broker_url=stack.broker_url, database="stepping")
        quick = {"heartbeat_interval": 0.5, "heartbeat_timeout": 1.5, "scan_interval": 0.25, "shutdown_grace": 1.0}
        self.cluster = Cluster(stack, settings.model_copy(update=quick), folder)

    def step(self, seconds: int) -> None:
        before = self.cluster.app.resources.store.now()
        # One long, written at once: who reads it sees the old one or the new one.
        with self._shift.open("r+b") as file:
            file.write(struct.pack("l", struct.unpack("l", self._shift.read_bytes())[0] + seconds))
        assert abs((self.cluster.app.resources.store.now() - before).total_seconds() - seconds) < 5

    def go_on_for(self, seconds: float) -> None:
        """Let it work, and be judged by its scanners, for so long by its clock."""
        now = self.cluster.app.resources.store.now
        until = now() + timedelta(seconds=seconds)
        wait_until(lambda: now() > until, 30, "time to pass")


@pytest.fixture
def stepping(library: Path, tmp_path: Path, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stepping]:
    shift = tmp_path / "shift"
    shift.write_bytes(struct.pack("l", 0))
    own = Stack(tmp_path / "stack", broker_url=f"{stack.broker_url.rpartition('/')[0]}/15")
    with monkeypatch.context() as preloaded:
        preloaded.setenv("LD_PRELOAD", str(library))
        preloaded.setenv("CLOCK_SHIFT_FILE", str(shift))
        own.start()
    try:
        yield Stepping(own, shift, tmp_path)
    finally:
        own.kill_workers()
        own.mongod.kill()  # it would wait by its clock
        own.stop()


def test_a_clock_is_shifted(shifted: Shifted) -> None:
    code = [sys.executable, "-c", "import time; time.sleep(0.01); print(time.time())"]
    told = float(subprocess.run(code, env=shifted(AHEAD), capture_output=True, text=True, check=True).stdout)
    assert abs(told - time.time() - AHEAD) < 60


@pytest.mark.soak
def test_clocks_that_are_ten_minutes_off(storm: Storm, shifted: Shifted) -> None:
    """Workers ahead and behind, nudged by a beat that is ahead; and one that is behind is killed."""
    doomed = storm.worker(env=shifted(BEHIND))
    storm.worker(env=shifted(BEHIND))
    storm.hire(workers=1, env=shifted(AHEAD))
    wait_until(lambda: storm.database["workers"].count_documents({}) == 3, 30, "all workers")
    storm.start(PROCESSES)
    storm.wait_lines(PROCESSES)
    storm.kill(doomed)
    storm.check()
    slots = 2
    assert len(storm.lines()) <= storm.tasks + slots, "only what the killed one held was run again"


def test_mongodbs_clock_steps_forward(stepping: Stepping) -> None:
    """Who works is taken for alive, and what it does for well under way; who is killed then is known as ever."""
    cluster = stepping.cluster
    cluster.beat()
    doomed, survivor = cluster.worker(concurrency=2, wait=False), cluster.worker(concurrency=2, wait=False)
    wait_until(lambda: cluster.database["workers"].count_documents({}) == 2, 30, "both workers")
    process_id = cluster.app.start("many_slow", cluster.folder, 4, 600)
    cluster.wait_began(4)
    stepping.go_on_for(1)
    stepping.step(HOUR)
    stepping.go_on_for(3)  # scans are held back for the first 1.5 s
    decisions = list(cluster.database["decisions"].find({"actor": "slow"}))
    assert [(one["state"], one.get("timeouts", 0)) for one in decisions] == [("working", 0)] * 4
    assert len(cluster.began()) == 4

    doomed.kill_group()
    # As if it ran on another machine: nobody can look for its pid.
    cluster.database["workers"].update_one({"pid": doomed.pid}, {"$set": {"host": "elsewhere", "pid": 1}})
    requeued = cluster.database["decisions"]
    beats = cluster.beats_until(survivor, lambda: requeued.count_documents({"workersLost": 1}) == 2, "the killed one's")
    assert beats <= 8, "a timeout of three, a scan, and as many again for a machine that is busy"
    cluster.go()
    assert len(cluster.app.result(process_id, timeout=20)) == 4
