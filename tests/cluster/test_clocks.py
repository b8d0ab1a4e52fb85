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
    """Workers ahead and behind, one of each kind is killed; and nudged by a beat that is ahead."""
    storm.hire(workers=1, env=shifted(BEHIND), beats=0)
    storm.hire(workers=1, env=shifted(AHEAD))
    doomed = [storm.hire(workers=1, beats=0, env=shifted(off))[0] for off in (AHEAD, BEHIND)]
    storm.start(PROCESSES)
    storm.wait_lines(PROCESSES)
    for worker in doomed:
        storm.kill(worker)
    storm.check()
    slots = 2 * len(doomed)
    assert len(storm.lines()) <= storm.tasks + slots, "only what the killed ones held was run again"
