"""Operations in Spark by a worker that keeps a session: on a standalone cluster whose parts are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recovery import Settings, operations
from recovery.engine import Outbox, Resources
from recovery.operations import OperationRequest, OperationWorker
from recovery.records import Operation, OperationState, Phase, Totals
from recovery.stack import Stack
from recovery.stack.child import ChildProcess
from tests.bench.sweep_data import fill
from tests.sweep.standalone import ROOT, ConnectServer, Standalone
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
APP = "tests.cluster.app:app"
PROCESSES, RATE = 6000, 500.0


class Driven:
    """Operations on a database of processes, of which some are wrong, and workers that drive Spark."""

    def __init__(self, stack: Stack, settings: Settings, environment: dict[str, str]) -> None:
        self.stack, self.settings, self.environment = stack, settings, environment
        self.resources = Resources.connect(settings)
        self.broken = fill(settings, PROCESSES)

    def worker(self) -> ChildProcess:
        """A worker that serves the queue spark, and does nothing else."""
        env = {**self.settings.environment(), **self.environment}
        before = self.serving()
        child = self.stack.start_worker(APP, concurrency=1, queues=["spark"], pool="threads", env=env)
        wait_until(lambda: self.serving() - before or not child.running, 60, "a worker for Spark")
        assert child.running, "\n".join(child.last_lines(30))
        return child

    def serving(self) -> set[str]:
        return {worker.id for worker in self.resources.store.workers.all() if worker.spark}

    def ask(self, **more: Any) -> Operation:
        return operations.start(self.resources, OperationRequest("check", everything=True, **more), "a test")

    def now(self, operation: Operation) -> Operation:
        return operations.find(self.resources, operation.id)

    def wait_read(self, operation: Operation, share: float) -> None:
        """Until so much of it was read."""

        def read() -> bool:
            parts = self.resources.store.operation_ranges.all(operation.id, Phase.PLAN)
            return sum(part.totals.processes for part in parts) >= share * PROCESSES

        wait_until(read, 120, f"{share:.0%} of operation {operation.id}")

    def wait_finished(self, operation: Operation, timeout: float = 120) -> Totals:
        over = (OperationState.FINISHED, OperationState.CANCELLED)
        wait_until(lambda: self.now(operation).state in over, timeout, "the end of the operation")
        assert self.now(operation).state is OperationState.FINISHED, self.now(operation).refusal
        planned = self.now(operation).planned
        assert planned is not None
        return planned

    def by_a_worker(self) -> Totals:
        """The same check by a recovery worker in this process."""
        operation = self.ask(spark=False)
        worker = OperationWorker(self.resources, Outbox(self.resources), "a worker")
        wait_until(lambda: not worker.run_once(60), 120, "the check by a worker")
        return self.wait_finished(operation)


@pytest.fixture
def drive(stack: Stack, settings: Settings) -> Iterator[Callable[..., Driven]]:
    workers = len(stack.workers)

    def made(master: str, environment: dict[str, str] | None = None) -> Driven:
        # No scanner, so that nothing is repaired meanwhile, and nobody else takes a range.
        changes = {"scanners": False, "spark_master": master, "heartbeat_interval": 0.5, "heartbeat_timeout": 1.5}
        return Driven(stack, settings.model_copy(update=changes), environment or {})

    yield made
    for worker in stack.workers[workers:]:
        worker.kill_group()


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    cluster = Standalone(tmp_path / "spark")
    yield cluster
    cluster.stop()


@pytest.mark.soak
def test_whoever_is_killed_the_report_is_the_same(drive: Callable[..., Driven], standalone: Standalone) -> None:
    """An executor, Spark's workers, the driver: each in the middle of a check, which ends as if nothing was."""
    parts = [standalone.worker(), standalone.worker()]
    driven = drive(standalone.url, standalone.environment)
    driver = driven.worker()
    expected = driven.by_a_worker()
    assert (expected.processes, expected.found) == (PROCESSES, driven.broken)

    def kill_executor() -> None:
        standalone.executors()[0].kill()

    def kill_workers() -> None:
        for part in parts:  # with their executors, one of which is at a range
            part.kill_group()
        standalone.worker()

    def kill_driver() -> None:
        driver.kill_group()
        driven.worker()

    leases = []
    for kill in (kill_executor, kill_workers, kill_driver):
        operation = driven.ask(spark=True, rate=RATE)
        driven.wait_read(operation, 0.2)
        kill()
        assert driven.now(operation).state is OperationState.PLANNING, "killed in the middle of it"
        assert driven.wait_finished(operation) == expected, kill.__name__
        assert driven.now(operation).driven, "no worker took it"
        leases.append(max(p.leases for p in driven.resources.store.operation_ranges.all(operation.id, Phase.PLAN)))
    assert min(leases) >= 2, "who was killed had leased one"
    # Without a rate ranges are surveyed as a whole, by both.
    assert driven.wait_finished(driven.ask(spark=True)) == expected


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[ConnectServer]:
    pytest.importorskip("grpc", reason="Spark Connect needs pip install 'pyspark[connect]'")
    server = ConnectServer(tmp_path)
    yield server
    server.stop()


@pytest.mark.soak
def test_spark_connect(drive: Callable[..., Driven], connect: ConnectServer, tmp_path: Path) -> None:
    """The driver runs elsewhere: the same report, sums and files; and its requests, which its pages show, do not have
    MongoDB's address."""
    driven = drive(connect.url)
    driven.worker()
    expected = driven.by_a_worker()
    target = tmp_path / "found"
    operation = driven.ask(spark=True, parquet=str(target))
    assert driven.wait_finished(operation) == expected
    by_worker, by_spark = (driven.now(one).sums for one in (driven.resources.store.operations.newest(2)))
    assert_hidden(driven.settings, connect.url, operation.id)
    assert by_worker == by_spark and by_spark and list(target.glob("operation=*/*.parquet"))


REQUESTS = """
import sys
from recovery.engine import Resources
from recovery.settings import load
from recovery.sweep.session import connected_session
from recovery.sweep.sums import results, session_of

resources = Resources.connect(load())
with connected_session(sys.argv[1]) as made:
    frame = results(session_of(made), resources, int(sys.argv[2]))
    print(frame._plan.to_proto(made.client), frame.count())
    frame.explain("extended")
"""


def assert_hidden(settings: Settings, url: str, number: int) -> None:
    """In a process of its own: one has sessions of Spark Connect, or another one."""
    command = [sys.executable, "-c", REQUESTS, url, str(number)]
    env = {**os.environ, **settings.environment()}
    run = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert "recovery_results" in run.stdout, run.stderr
    assert "mongodb" not in run.stdout
