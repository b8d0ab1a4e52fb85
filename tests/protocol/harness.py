"""A small world in which the life of a task can be stopped anywhere.

Workers are pool slots without Celery: a forked process that takes messages from Redis and runs them, and that
ends (SIGKILL to itself) just before or after a named step. The survivors are slots and scanners in the test's
own process. Everything else is real: MongoDB, Redis, the engine, the deadlines.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from recovery import Recovery, Settings
from recovery.queue import Broker
from recovery.store import layout
from tests import world
from tests.documents import database_of
from tests.faults import Fault, Kind, Plan
from tests.faults.layer import steps

RESULT = 2 * (1 + 4 + 9)
STEPS: dict[str, tuple[type, str]] = {**steps(), "Broker.push": (Broker, "push")}


def make_app(settings: Settings) -> Recovery:
    """Two deciders, a fan-out and a join: `pyramid([1, 2, 3])` is 2 × (1 + 4 + 9)."""
    app = Recovery(settings)

    @app.actor(worker_timeout=0.4)
    def square(number: int) -> int:
        return number * number

    @app.actor(worker_timeout=0.4)
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @app.actor(worker_timeout=0.4)
    def double(number: int) -> int:
        return 2 * number

    @app.actor(worker_timeout=0.4)
    def squares(numbers: list[int]) -> Any:
        return total.schedule([square.schedule(number) for number in numbers])

    @app.process(idle_timeout=0.4, worker_timeout=0.4)
    def pyramid(numbers: list[int]) -> Any:
        return double.schedule(squares.schedule(numbers))

    @app.process(idle_timeout=0.4, worker_timeout=0.4)
    def chain(steps: int) -> Any:
        promise = double.schedule(1)
        for _ in range(steps - 1):
            promise = double.schedule(promise)
        return promise

    return app


class World(world.World):
    """A world in which a process can die."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.app = make_app(self.settings)
        layout.create(database_of(self.store))
        self.tell()

    def dies(self, at: str, work: Callable[[World], object], skipped: int = 0) -> None:
        """Do `work` in a process of its own that must end by SIGKILL `at` 'Class.method:before' or ':after', the
        first time that it gets there, or after having been there some times."""
        child = os.fork()
        if child == 0:
            try:
                with _death(at, skipped):
                    work(type(self)(self.settings))
            finally:
                os._exit(1)  # it lived: the test fails
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"{at} was not reached"


@contextmanager
def _death(at: str, skipped: int) -> Iterator[None]:
    """One plan for all threads: an apply has its own."""
    name, _, when = at.partition(":")
    owner, method = STEPS[name]
    real = getattr(owner, method)
    plan = Plan(Fault(Kind.KILL_AFTER if when == "after" else Kind.KILL, skipped, name))

    def step(*args: Any, **kwargs: Any) -> Any:
        return plan.take(name, real, None, *args, **kwargs)

    with patch.object(owner, method, step):
        yield
