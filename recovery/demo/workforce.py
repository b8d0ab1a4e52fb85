"""The demo's workers and beats: started, killed with all their processes, and replaced at once."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from recovery.demo.app import APP, app
from recovery.demo.options import Chaos
from recovery.errors import ServerError
from recovery.metrics_folder import MULTIPROC_DIR
from recovery.queue.message import SPARK_QUEUE
from recovery.stack import ChildProcess, Stack
from recovery.store import Store

CONCURRENCY = 2
READY_TIMEOUT = 60.0


class Workforce:
    """The workers of a stack. `tick` kills a worker when it is time. Thread-safe."""

    def __init__(self, stack: Stack, env: Mapping[str, str], chaos: Chaos, metrics: Path) -> None:
        """`metrics` is the folder in which each worker gets its own folder, because each worker serves its own
        metrics."""
        self._stack, self._env, self._chaos, self._metrics = stack, env, chaos, metrics
        self._hired = itertools.count(1)
        # Held while a child is removed from a list. Otherwise another thread could mistake its kill for an unexpected
        # end.
        self._lock = threading.Lock()
        self._workers: list[ChildProcess] = []
        self._wounded: list[ChildProcess] = []
        self._beats: list[ChildProcess] = []
        self._driver: ChildProcess | None = None
        """The worker that drives Spark, if wanted."""
        self.kills = 0

    @property
    def queues(self) -> Sequence[str]:
        """The queues that these workers serve."""
        return sorted(app.actors)

    def start(self, workers: int, *, spark: bool = False) -> None:
        """Start workers and a beat, and with `spark` a worker that drives Spark. Returns before they are ready."""
        for _ in range(workers):
            self._hire()
        if spark:
            self._hire_driver()
        self.hire_beat()

    def ready(self, store: Store) -> bool:
        """Return whether all workers have reported."""
        self.require_alive()
        return len(store.workers.all()) >= len(self._workers) + (self._driver is not None)

    def settled(self, store: Store) -> bool:
        """Return whether the live workers, by their records, are exactly the workers of this stack."""
        self.require_alive()
        with self._lock:
            own_pids = {child.pid for child in self._children() if child not in self._beats}
        return {worker.pid for worker in store.overview.workers_alive()} == own_pids

    def tick(self, store: Store) -> None:
        """Kill a worker if it is time. Raise ServerError if a worker has ended by itself.

        Only workers that have reported are killed. Otherwise, on a machine where a start takes longer than the time
        between two kills, no worker would ever work.
        """
        self.require_alive()
        if self._chaos.is_due(time.monotonic()):
            reported_pids = {worker.pid for worker in store.workers.all()}
            if ready := [child for child in self._workers if child.pid in reported_pids]:
                self._replace(self._chaos.choose(ready))

    def choose_worker(self) -> ChildProcess:
        """Return a randomly chosen worker."""
        with self._lock:
            return self._chaos.choose(self._workers)

    def kill_worker(self) -> str:
        """Kill a worker with its pool, and start another. Return the killed worker's name."""
        victim = self.choose_worker()
        self._replace(victim)
        return victim.name

    def kill_driver(self) -> str:
        """Kill the worker that drives Spark, with its Spark, and start another. Return the killed worker's name."""
        assert self._driver is not None
        victim = self._driver
        with self._lock:
            self._driver = None
        victim.kill_group()
        self.kills += 1
        self._hire_driver()
        return victim.name

    def kill_pool_process(self) -> str:
        """Kill a pool process of a worker, or the worker if it has none yet. Return the worker's name."""
        worker = self.choose_worker()
        pool = sorted(set(worker.members()) - {worker.pid})
        if not pool:
            self._replace(worker)
            return worker.name
        # Celery ends a worker if one of its pool processes dies before it is ready; see `require_alive`.
        self._wounded.append(worker)
        os.kill(self._chaos.choose(pool), signal.SIGKILL)
        return worker.name

    def hire_beat(self) -> None:
        """Start another beat."""
        with self._lock:
            self._beats.append(self._stack.start_beat(APP, env=self._env))

    def kill_beat(self) -> None:
        """Kill the beat that was started last."""
        with self._lock:
            beat = self._beats.pop()
        beat.kill_group()

    def require_alive(self) -> None:
        """Raise ServerError, with the end of its log, if a child ended that was not killed by us. A worker that ended
        after we killed one of its pool processes is replaced, as a supervisor would do."""
        with self._lock:
            ended = [worker for worker in self._wounded if worker in self._workers and not worker.running]
            for worker in ended:
                self._workers.remove(worker)
        for _ in ended:
            self._hire()
        with self._lock:
            for child in self._children():
                if not child.running:
                    lines = "\n  ".join(child.last_lines(15))
                    raise ServerError(f"{child.name} ended by itself with code {child.exit_code}:\n  {lines}")

    def dismiss(self) -> None:
        """Kill all children. This loses nothing, and takes no time."""
        with self._lock:
            children = self._children()
            self._workers.clear()
            self._driver = None
            self._beats.clear()
        for child in children:
            child.kill_group()

    def _children(self) -> list[ChildProcess]:
        return [*self._workers, *self._beats, *([self._driver] if self._driver is not None else [])]

    def _replace(self, victim: ChildProcess) -> None:
        with self._lock:
            self._workers.remove(victim)
        victim.kill_group()
        self.kills += 1
        self._hire()

    def _hire(self) -> None:
        with self._lock:
            self._workers.append(self._stack.start_worker(APP, concurrency=CONCURRENCY, env=self._environment()))

    def _hire_driver(self) -> None:
        with self._lock:
            self._driver = self._stack.start_worker(
                APP,
                concurrency=1,
                queues=[SPARK_QUEUE],
                pool="threads",
                name=f"spark-{self.kills}",
                env=self._environment(),
            )

    def _environment(self) -> dict[str, str]:
        folder = self._metrics / str(next(self._hired))
        folder.mkdir()
        return {**self._env, MULTIPROC_DIR: str(folder)}
