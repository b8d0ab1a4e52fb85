"""A real cluster, and a real Prometheus with the deployed rules that looks at it: what alerts are tried on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from recovery.stack import ChildProcess
from recovery.stack.server_process import free_port
from tests.cluster.conftest import Cluster
from tests.cluster.test_prometheus import wait_whole
from tests.metrics import watched
from tests.metrics.alerts import rules
from tests.metrics.prometheus import Prometheus, Series, hurried
from tests.waiting import wait_until

FACTOR = 20
"""How much shorter the rules' times are."""


class Scene:
    """Two workers, a beat, and the Prometheus that looks at them."""

    def __init__(
        self, cluster: Cluster, prometheus: Prometheus, workers: list[ChildProcess], beat: ChildProcess
    ) -> None:
        self.cluster, self.prometheus, self.workers, self.beat = cluster, prometheus, workers, beat

    def fires(self, *alerts: str, timeout: float = 60, beside: tuple[str, ...] = ()) -> None:
        """All of these come to fire, and no other does but those that go with them."""
        expected = {f"Recovery{name}" for name in alerts}
        fired: set[str] = set()

        def all_fired() -> bool:
            fired.update(self.prometheus.firing())
            return expected <= fired

        with suppress(AssertionError):
            wait_until(all_fired, timeout, "alerts to fire")
        silent = expected - fired
        assert {alert: self.course(rules()[alert]["expr"]) for alert in silent} == {}, self.prometheus.alerts()
        others = fired - expected - {f"Recovery{name}" for name in beside}
        assert {alert: self.course(rules()[alert]["expr"]) for alert in others} == {}, self.course("up")

    def course(self, query: str) -> list[Series]:
        """What a query gave within the last two minutes, to see why an alert fired."""
        now = self.prometheus.now()
        return self.prometheus.ask_over(query, now - 120, now, 1.0)

    def ceases(self, *alerts: str, timeout: float = 60) -> None:
        """None of these fires any more."""
        named = {f"Recovery{name}" for name in alerts}
        wait_until(lambda: not named & self.prometheus.firing().keys(), timeout, f"the end of {sorted(named)}")


@contextmanager
def scene(cluster: Cluster, folder: Path, *, every: float = 1.0, factor: float = FACTOR) -> Iterator[Scene]:
    """Two workers and a beat that are well, and rules whose times are shorter by a factor."""
    ports = [free_port(), free_port()]
    beat = cluster.beat()
    workers = [cluster.worker(metrics_port=port, concurrency=2, wait=False) for port in ports]
    with Prometheus(folder, ports, every=every, rules=None if factor == 1 else hurried(factor)) as prometheus:
        wait_whole(prometheus)
        yield Scene(cluster, prometheus, workers, beat)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others' workers remove nothing."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def seen(cluster: Cluster, tmp_path: Path) -> Iterator[Scene]:
    """One of `watched`, with the rules in a twentieth of their time."""
    cluster.serve(watched)
    with scene(cluster, tmp_path / "prometheus") as found:
        yield found
