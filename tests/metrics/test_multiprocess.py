"""Sums and quantiles of what many processes counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recovery.metrics import multiprocess
from recovery.metrics.multiprocess import quantile

COUNTING = """
import os, signal
from recovery import metrics
metrics.REQUEUES.labels("WORKER_LOST", "pack").inc(3)
metrics.REQUEUES.labels("DUE", "pack").inc()
metrics.LAG.observe(0.2)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_killed_processes_counted_is_added_up(tmp_path: Path) -> None:
    for _ in range(2):
        env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
        assert subprocess.run([sys.executable, "-c", COUNTING], env=env, check=False).returncode < 0
    found = multiprocess.collect(tmp_path)
    assert multiprocess.total(found, "recovery_requeues") == 8
    assert multiprocess.total(found, "recovery_requeues", reason="DUE") == 2
    assert multiprocess.total(found, "recovery_stale_results") == 0
    lag = multiprocess.buckets(found, "recovery_requeue_lag_seconds")
    assert (lag[0.1], lag[0.25], lag[float("inf")]) == (0, 2, 2)


def test_a_process_that_was_killed_while_it_made_its_file(tmp_path: Path) -> None:
    (tmp_path / "counter_1.db").touch()
    assert multiprocess.collect(tmp_path) == []


@pytest.mark.parametrize(
    ("q", "expected"),
    [(0.0, 0.0), (0.25, 0.5), (0.5, 1.0), (0.75, 1.5), (1.0, 2.0)],
)
def test_quantiles_are_linear_within_a_bucket(q: float, expected: float) -> None:
    assert quantile(q, {1.0: 10, 2.0: 20, float("inf"): 20}) == pytest.approx(expected)


def test_quantile_of_nothing_and_of_the_last_bucket() -> None:
    assert quantile(0.5, {}) is None
    assert quantile(0.5, {1.0: 0, float("inf"): 0}) is None
    assert quantile(0.99, {1.0: 0, 2.0: 0, float("inf"): 5}) == 2.0
