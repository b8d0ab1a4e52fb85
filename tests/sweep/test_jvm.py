"""Spark's JVM ends, and nothing else: whoever drove in it goes on in another one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from recovery import operations
from recovery.engine import Resources
from recovery.operations import OperationRequest
from recovery.records import OperationState
from recovery.settings import Settings
from recovery.stack import Stack
from tests.cli.command import ROOT
from tests.sweep.database import Database
from tests.sweep.shapes import work_timeout
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
APP = "tests.cluster.app:app"

SCRIPT = """
import os, psutil
from recovery.engine import Resources
from recovery.errors import SweepFailed
from recovery.settings import load
from recovery.sweep import ask, drive_here
from recovery.sweep.session import is_alive, spark
from recovery.sweep.drive import Driver

resources = Resources.connect(load())
before = dict(os.environ)
operation = ask(resources, here=True)
try:
    with spark(resources.settings) as cluster:
        assert is_alive(cluster)
        assert before.items() <= os.environ.items(), "what was there is left as it was"
        (jvm,) = [one for one in psutil.Process().children(recursive=True) if one.name() == "java"]
        jvm.kill()
        jvm.wait(10)
        assert not is_alive(cluster)
        Driver(cluster, resources, "driver").drive(operation.id)
except SweepFailed as error:
    print(error)
resources.store.operations.drive(operation.id, "driver", 0.0)
drive_here(resources, operation)
print(resources.store.operations.get(operation.id).state)
"""


@pytest.mark.soak
def test_another_is_started_in_the_same_process(database: Database, settings: Settings, tmp_path: Path) -> None:
    """In a process of its own, since Spark's session is one per process."""
    database.add(work_timeout)
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={
            **os.environ,
            **settings.environment(),
            "RECOVERY_SPARK_MASTER": "local[1]",
            "PROMETHEUS_MULTIPROC_DIR": str(tmp_path),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
    )
    told, state = run.stdout.splitlines() or (run.stderr, "")
    assert told.startswith("operation 1 was interrupted: ") and state == "finished", run.stderr
    pids = {one.stem.rpartition("_")[2] for one in tmp_path.iterdir()}
    assert len(pids) == 1, "executors count in no folder of the driver's"


@pytest.mark.soak
def test_a_worker_drives_on(stack: Stack, database: Database, settings: Settings) -> None:
    """The same process: once while nothing is to be done, and once in the middle of an operation."""
    for _ in range(30):
        database.add(work_timeout)
    settings = settings.model_copy(update={"scanners": False, "spark_master": "local[1]"})
    resources, env = Resources.connect(settings), settings.environment()
    worker = stack.start_worker(APP, concurrency=1, queues=["spark"], pool="threads", env=env)
    try:
        wait_until(resources.store.workers.serve_spark, 60, "a worker for Spark")

        def kill_jvm() -> None:
            (jvm,) = [one for one in psutil.Process(worker.pid).children(recursive=True) if one.name() == "java"]
            jvm.kill()
            jvm.wait(10)

        def checked(in_the_middle: Callable[[], None] | None = None) -> None:
            asked = OperationRequest("check", everything=True, spark=True, rate=10.0 if in_the_middle else None)
            number = operations.start(resources, asked, "a test").id
            if in_the_middle is not None:
                begun = lambda: operations.progress(resources, operations.find(resources, number)).totals.processes  # noqa: E731
                wait_until(begun, 60, "that some are read")
                in_the_middle()
            finished = lambda: operations.find(resources, number).state is OperationState.FINISHED  # noqa: E731
            wait_until(finished, 120, "its end")
            done = operations.find(resources, number)
            assert done.driven and done.planned is not None and done.planned.found == 30, "by no recovery worker"

        checked()
        kill_jvm()
        checked(kill_jvm)
        checked()
        assert worker.running
    finally:
        worker.kill_group()
