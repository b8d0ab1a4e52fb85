"""A client that starts processes and asks for their results, for as long as a scenario takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.network.cluster import CLIENT, Cluster
from tests.waiting import wait_until

PERIOD, PARTS, LONGEST = 2.5, 10, 0.5
"""A process each 2.5 s with 3 s of work: one worker of two slots has time left."""


class Workload:
    """One run of the client program. Its processes have keys that begin with its name."""

    def __init__(self, cluster: Cluster, name: str, *numbers: float) -> None:
        self._cluster, self.name = cluster, name
        self._pause = cluster.folder / f"pause-{name}"
        self._program = cluster.run(
            f"client-{name}", CLIENT, sys.executable, "-m", "tests.network.client", name, *map(str, numbers)
        )

    def lines(self, *events: str) -> list[dict[str, Any]]:
        """What the client noted of these events."""
        return [line for line in self._cluster.lines(f"client-{self.name}") if line["event"] in events]

    def began(self) -> dict[str, float]:
        """{key: when its first task began}."""
        began: dict[str, float] = {}
        for line in self._cluster.ledger():
            if line["event"] == "began" and line["key"].startswith(f"{self.name}-"):
                began[line["key"]] = min(line["at"], began.get(line["key"], line["at"]))
        return began

    def wait_told(self, count: int) -> None:
        """Wait until the client has so many results."""
        wait_until(lambda: len(self.lines("told")) >= count, 60, f"{count} results")

    def pause(self) -> None:
        """Start nothing until `go_on`, and wait until all that was started has ended."""
        self._pause.touch()
        wait_until(lambda: len(self.lines("asked")) == len(self.lines("told")), 60, "all results")

    def go_on(self) -> None:
        """Start processes again."""
        self._pause.unlink()

    def finish(self, seconds: float) -> float:
        """Start nothing more, and wait until all that was started has ended: how many seconds that took."""
        began = time.monotonic()
        (self._cluster.folder / f"enough-{self.name}").touch()
        ended = self._program.wait(seconds)
        told = {line["key"] for line in self.lines("told", "broken")}
        waiting = [line["key"] for line in self.lines("asked") if line["key"] not in told]
        assert ended and not waiting, f"not ended {seconds:g} s after the network was whole again: {waiting}"
        assert self._program.exit_code == 0, self._program.last_lines()
        return time.monotonic() - began

    def stop(self) -> None:
        """End the client, whatever it waits for."""
        self._program.kill_group()


@contextmanager
def workload(
    cluster: Cluster, name: str, period: float = PERIOD, parts: int = PARTS, longest: float = LONGEST
) -> Iterator[Workload]:
    """A client that starts a process of so many parts every `period` seconds, until the test ends it."""
    running = Workload(cluster, name, period, parts, longest)
    try:
        yield running
    finally:
        running.stop()
