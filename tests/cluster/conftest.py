"""Real Celery workers and beat, really killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
from pymongo import MongoClient

from recovery import Recovery, Settings
from recovery.stack import Mongod, ServerProcess, Stack, Valkey
from recovery.stack.child import ChildProcess
from tests.cluster import app as served
from tests.cluster.storm import Storm
from tests.waiting import wait_until


class Cluster:
    """Workers and beats of one test, on its own database."""

    def __init__(self, stack: Stack, settings: Settings, signs: Path) -> None:
        self.stack, self.settings, self.folder = stack, settings, str(signs)
        self.app = Recovery(settings)
        self.serve(served)
        self.database: Any = MongoClient(settings.mongo_uri)[settings.database]

    def serve(self, module: ModuleType) -> None:
        """Workers from now on serve the `app` of this module, and processes of it are started."""
        self._served, self.app.actors = f"{module.__name__}:app", module.app.actors

    def worker(
        self, *, wait: bool = True, concurrency: int = 1, pool: str | None = None, **changes: Any
    ) -> ChildProcess:
        """A worker that has told that it lives (unless not to `wait`)."""
        settings = self.settings.model_copy(update=changes)
        child = self.stack.start_worker(self._served, concurrency=concurrency, pool=pool, env=settings.environment())
        if wait:
            # By its own record: one that was killed before may be removed at any time.
            told = {"pid": child.pid}
            wait_until(lambda: self.database["workers"].count_documents(told) or not child.running, 30, "a worker")
            assert child.running, "\n".join(child.last_lines(30))
        return child

    def beat(self) -> ChildProcess:
        return self.stack.start_beat(self._served, env=self.settings.environment())

    def began(self) -> list[int]:
        """Pids of the processes in which an attempt began, the first first."""
        signs = sorted(Path(self.folder).glob("began-*"), key=lambda sign: sign.stat().st_ctime_ns)
        return [int(sign.name.split("-")[1]) for sign in signs]

    def wait_began(self, count: int, timeout: float = 20) -> list[int]:
        wait_until(lambda: len(self.began()) >= count, timeout, f"{count} attempts begun")
        return self.began()

    def beats_until(self, beating: ChildProcess, condition: Callable[[], bool], what: str, timeout: float = 90) -> int:
        """Heartbeats of a worker from now until a condition holds: a bound by them is the same on a slow machine. Some
        may be missed, none is counted twice."""
        seen = set[Any]()

        def holds() -> bool:
            found = self.database["workers"].find_one({"pid": beating.pid}, {"recoveryTime": True})
            seen.add(found and found["recoveryTime"])
            return condition()

        wait_until(holds, timeout, what)
        return len(seen) - 1

    def beats_until_began(self, count: int, beating: ChildProcess) -> int:
        """The same until so many attempts have begun."""
        return self.beats_until(beating, lambda: len(self.began()) >= count, f"{count} attempts begun")

    def go(self) -> None:
        """Let the attempts that run, or begin from now on, end at once."""
        (Path(self.folder) / "go").touch()

    def stop_going(self) -> None:
        (Path(self.folder) / "go").unlink()

    def decision(self, actor: str) -> dict[str, Any]:
        found = self.database["decisions"].find_one({"actor": actor})
        assert found is not None
        return dict(found)

    def log(self, child: ChildProcess) -> str:
        return self.stack.log(child.name).read_text()


@pytest.fixture
def cluster(stack: Stack, settings: Settings, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(stack, settings.model_copy(update={"shutdown_grace": 1.0, "scan_interval": 0.5}), tmp_path)
    yield cluster
    for pid in cluster.began():  # a stopped process does not end by SIGTERM
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGCONT)


@pytest.fixture
def mongod(stack: Stack) -> Iterator[Mongod]:
    """The MongoDB of the run, to be frozen and killed."""
    assert stack.mongod is not None
    with given_back(stack.mongod):
        yield stack.mongod


@pytest.fixture
def valkey(stack: Stack) -> Iterator[Valkey]:
    """The Redis of the run, to be frozen and killed."""
    assert stack.valkey is not None
    with given_back(stack.valkey):
        yield stack.valkey


@contextmanager
def given_back(server: ServerProcess) -> Iterator[None]:
    """Whatever a test did to it, it serves the next one."""
    yield
    server.thaw()
    server.start()


@pytest.fixture
def storm(stack: Stack, settings: Settings, tmp_path: Path) -> Iterator[Storm]:
    """Workflows under way on the servers of the run."""
    storm = Storm(stack, settings, tmp_path)
    yield storm
    storm.end()
