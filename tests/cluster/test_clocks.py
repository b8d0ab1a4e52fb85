"""Workers and beats whose clocks are wrong. Deadlines are the database's, so nothing comes of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.cluster.storm import Storm
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

PROCESSES = 6
AHEAD, BEHIND = 600, -600
Shifted = Callable[[int], Mapping[str, str]]


@pytest.fixture
def shifted(tmp_path: Path) -> Shifted:
    """Gives the environment of a process whose clock is off by so many seconds."""
    compiler, library = shutil.which("cc"), tmp_path / "clock.so"
    if compiler is None:
        pytest.skip("needs a C compiler (cc): a clock is shifted by a preloaded library")
    source = Path(__file__).with_name("shifted_clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return lambda seconds: {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(seconds)}


def test_a_clock_is_shifted(shifted: Shifted) -> None:
    code = [sys.executable, "-c", "import time; time.sleep(0.01); print(time.time())"]
    told = float(subprocess.run(code, env=shifted(AHEAD), capture_output=True, text=True, check=True).stdout)
    assert abs(told - time.time() - AHEAD) < 60


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
