"""How long tests take, so that what takes longest is begun first: else one process is at it when the others are done.

`make durations` writes `durations.json` anew, from a run of all tests. Only slow tests are in it; any other counts as
OTHERWISE seconds. A test that is missing is begun a little too late, no more.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("durations.json")
SLOW = 0.5
"""Seconds from which on a test is in the file."""
OTHERWISE = 0.05
"""Seconds that any other test takes, about."""


def order(items: list[pytest.Item], scope: Callable[[str], str]) -> None:
    """Sort tests so that the scopes that take longest come first. Those of one scope stay in their order."""
    seconds: dict[str, float] = json.loads(FILE.read_text()) if FILE.exists() else {}
    of_scope = Counter[str]()
    for item in items:
        of_scope[scope(item.nodeid)] += seconds.get(item.nodeid, OTHERWISE)  # type: ignore[assignment]
    items.sort(key=lambda item: (-of_scope[scope(item.nodeid)], scope(item.nodeid)))


class Recorder:
    """A plugin that writes the file at the end of a run."""

    def __init__(self) -> None:
        self._seconds = Counter[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of a test's set-up, call or tear-down."""
        self._seconds[report.nodeid] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        """Write what is slow, the slowest first."""
        slow = {test: round(seconds, 1) for test, seconds in self._seconds.most_common() if seconds >= SLOW}
        FILE.write_text(json.dumps(slow, indent=0) + "\n")
