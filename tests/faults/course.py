"""A step of an actor in a thread of its own, which stops where its plan says and goes on when the test says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.faults.layer import under
from tests.faults.plan import Died, Plan

BOUND = 60.0
"""Seconds within which a step gets to its next stop, or is stuck."""


class Course:
    """`work`, begun and brought on by `go`. Only one of the test and its courses runs at any time."""

    def __init__(self, work: Callable[[], Any], plan: Plan) -> None:
        self.plan = plan
        self.at: str | None = None
        """Where it stands."""
        self.over = False
        self.result: Any = None
        self.error: BaseException | None = None
        plan.pause = self._pause
        self._work = work
        self._ours, self._its = threading.Semaphore(0), threading.Semaphore(0)
        self._doomed = False
        self._thread = threading.Thread(target=self._run, name="course", daemon=True)
        self._thread.start()

    @property
    def thread(self) -> int | None:
        """Its thread's number; another may have it when this one has ended."""
        return self._thread.ident

    def go(self) -> bool:
        """Let it go on, to its next stop or its end; True if that was the end."""
        assert not self.over, "it has ended"
        self._its.release()
        assert self._ours.acquire(timeout=BOUND), f"a step is stuck: {self.plan}"
        return self.over

    def finish(self) -> Any:
        """Let it go on to its end, wherever it stops; its result, or its error is raised."""
        while not self.over:
            self.go()
        if self.error is not None:
            raise self.error
        return self.result

    def die(self) -> None:
        """End its process where it stands."""
        self._doomed = True
        while not self.over:
            self.go()

    def _run(self) -> None:
        self._its.acquire()
        try:
            if not self._doomed:
                with under(self.plan):
                    self.result = self._work()
        except BaseException as error:
            self.error = error
        self.over = True
        self._ours.release()

    def _pause(self, name: str) -> None:
        self.at = name
        self._ours.release()
        self._its.acquire()
        self.at = None
        if self._doomed:
            raise Died(name)
