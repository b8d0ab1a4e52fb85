"""The demo's workers and its beat: started, killed with all their processes, replaced at once."""

from __future__ import annotations

import time
from collections.abc import Mapping

from recovery.demo.app import APP
from recovery.demo.chaos import Chaos
from recovery.errors import ServerError
from recovery.stack import Child, Stack
from recovery.store import Store

CONCURRENCY = 2
READY_WITHIN = 60.0


class Workforce:
    """Workers of one stack. `tick` kills one when its time has come."""

    def __init__(self, stack: Stack, env: Mapping[str, str], chaos: Chaos) -> None:
        self._stack, self._env, self._chaos = stack, env, chaos
        self._children: list[Child] = []
        self._beat: Child | None = None
        self.kills = 0

    def start(self, workers: int) -> None:
        """Start workers and a beat; returns before they are ready."""
        for _ in range(workers):
            self._hire()
        self._beat = self._stack.start_beat(APP, env=self._env)

    def ready(self, store: Store) -> bool:
        """Whether all workers have told that they live."""
        self.require_alive()
        return len(store.workers.all()) >= len(self._children)

    def tick(self, store: Store) -> None:
        """Kill a worker if its time has come; raise ServerError if one has ended by itself.

        Of those that have told that they live: on a machine on which a start takes longer than the time between
        two kills, nobody else would ever work.
        """
        self.require_alive()
        if self._chaos.is_due(time.monotonic()):
            living = {worker.pid for worker in store.workers.all()}
            ready = [child for child in self._children if child.pid in living]
            if not ready:
                return
            victim = self._chaos.choose(ready)
            self._children.remove(victim)
            victim.kill_group()
            self.kills += 1
            self._hire()

    def require_alive(self) -> None:
        """Raise ServerError, with the end of its log, if a child that we did not kill has ended."""
        for child in [*self._children, *([self._beat] if self._beat else [])]:
            if not child.running:
                lines = "\n  ".join(child.last_lines(15))
                raise ServerError(f"{child.name} ended by itself with code {child.exit_code}:\n  {lines}")

    def dismiss(self) -> None:
        """Kill all that are left. Nothing is lost by it, and it takes no time."""
        for child in [*self._children, *([self._beat] if self._beat else [])]:
            child.kill_group()
        self._children.clear()
        self._beat = None

    def _hire(self) -> None:
        self._children.append(self._stack.start_worker(APP, concurrency=CONCURRENCY, env=self._env))
