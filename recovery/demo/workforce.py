"""The demo's workers and its beats: started, killed with all their processes, replaced at once."""

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
    """Workers of one stack. `tick` kills one when its time has come. Safe for threads."""

    def __init__(self, stack: Stack, env: Mapping[str, str], chaos: Chaos, metrics: Path) -> None:
        """`metrics`: where each worker has a folder for its own, since it serves them to whoever asks."""
        self._stack, self._env, self._chaos, self._metrics = stack, env, chaos, metrics
        self._hired = itertools.count(1)
        # Held while a child is taken off the lists, so that nobody takes its end for one of its own doing.
        self._lock = threading.Lock()
        self._workers: list[ChildProcess] = []
        self._wounded: list[ChildProcess] = []
        self._beats: list[ChildProcess] = []
        self._driver: ChildProcess | None = None
        """The worker that drives Spark, if there is to be one."""
        self.kills = 0

    @property
    def queues(self) -> Sequence[str]:
        """The queues that its workers serve."""
        return sorted(app.actors)

    def start(self, workers: int, *, spark: bool = False) -> None:
        """Start workers and a beat, and one that drives Spark; returns before they are ready."""
        for _ in range(workers):
            self._hire()
        if spark:
            self._hire_driver()
        self.hire_beat()

    def ready(self, store: Store) -> bool:
        """Whether all workers have told that they live."""
        self.require_alive()
        return len(store.workers.all()) >= len(self._workers) + (self._driver is not None)

    def settled(self, store: Store) -> bool:
        """Whether those that live by their records are its workers, all of them and no others."""
        self.require_alive()
        with self._lock:
            ours = {child.pid for child in self._all() if child not in self._beats}
        return {worker.pid for worker in store.overview.workers_alive()} == ours

    def tick(self, store: Store) -> None:
        """Kill a worker if its time has come; raise ServerError if one has ended by itself.

        Of those that have told that they live: on a machine on which a start takes longer than the time between
        two kills, nobody else would ever work.
        """
        self.require_alive()
        if self._chaos.is_due(time.monotonic()):
            living = {worker.pid for worker in store.workers.all()}
            if ready := [child for child in self._workers if child.pid in living]:
                self._replace(self._chaos.choose(ready))

    def choose_worker(self) -> ChildProcess:
        """One of the workers."""
        with self._lock:
            return self._chaos.choose(self._workers)

    def kill_worker(self) -> str:
        """Kill a worker with its pool, and start another; its name."""
        victim = self.choose_worker()
        self._replace(victim)
        return victim.name

    def kill_driver(self) -> str:
        """Kill the worker that drives Spark, with its Spark, and start another; its name."""
        assert self._driver is not None
        victim = self._driver
        with self._lock:
            self._driver = None
        victim.kill_group()
        self.kills += 1
        self._hire_driver()
        return victim.name

    def kill_pool_process(self) -> str:
        """Kill one process of a worker's pool, or the worker if it has none yet; the worker's name."""
        worker = self.choose_worker()
        pool = sorted(set(worker.members()) - {worker.pid})
        if not pool:
            self._replace(worker)
            return worker.name
        # A worker one of whose pool processes dies before it is ready is ended by Celery; see `require_alive`.
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
        """Raise ServerError, with the end of its log, if a child that we did not kill has ended. A worker that ended
        since we killed a process of its pool is started anew, as a supervisor does."""
        with self._lock:
            ended = [one for one in self._wounded if one in self._workers and not one.running]
            for worker in ended:
                self._workers.remove(worker)
        for _ in ended:
            self._hire()
        with self._lock:
            for child in self._all():
                if not child.running:
                    lines = "\n  ".join(child.last_lines(15))
                    raise ServerError(f"{child.name} ended by itself with code {child.exit_code}:\n  {lines}")

    def dismiss(self) -> None:
        """Kill all that are left. Nothing is lost by it, and it takes no time."""
        with self._lock:
            children = self._all()
            self._workers.clear()
            self._driver = None
            self._beats.clear()
        for child in children:
            child.kill_group()

    def _all(self) -> list[ChildProcess]:
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
