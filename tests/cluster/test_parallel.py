"""What a task may do in the default pool as in any program: have children by multiprocessing, use its streams."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cluster import parallel
from tests.cluster.conftest import Cluster
from tests.living import lives
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


def test_a_task_has_children_and_streams_and_its_children_end_with_it(cluster: Cluster) -> None:
    cluster.serve(parallel)
    worker = cluster.worker()
    computed, written = cluster.app.start("computes"), cluster.app.start("writes")
    assert cluster.app.result(computed, timeout=30) == [1, 2, 3, 4, "ForkPoolWorker"]
    ended = cluster.app.result(cluster.app.start("terminates", 50), timeout=60)
    assert ended == [-signal.SIGTERM], "as in any program: nobody else's handler runs first"
    assert cluster.app.result(written, timeout=20) == ["utf-8", "utf-8"]
    lines = worker.last_lines(200)
    assert "by a subprocess" in lines, "past the log, to where the worker writes"
    assert any(line.endswith("by bytes") for line in lines), "a line of the log"

    def children() -> list[int]:
        return [int(sign.name.split("-")[1]) for sign in Path(cluster.folder).glob("child-*")]

    kept = cluster.app.result(cluster.app.start("keeps_an_executor"), timeout=20)
    assert cluster.app.result(cluster.app.start("keeps_an_executor"), timeout=20) == kept
    running = cluster.app.start("has_children", cluster.folder)
    # One for run_until of the task, and of each child and grandchild.
    wait_until(lambda: len(children()) == 4 and len(cluster.began()) == 5, 20, "two children, with one child each")
    first = children()
    (pid,) = set(cluster.began()) - set(first)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(lives, [*first, *kept])), 20, "the end of all that it had started")
    cluster.go()
    assert cluster.app.result(running, timeout=30) is None
    (kept,) = cluster.app.result(cluster.app.start("keeps_an_executor"), timeout=20)
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.wait(10), "who leaves an executor open does not keep the worker from its end"
    wait_until(lambda: not lives(kept), 10, "the end of the executor's process")
