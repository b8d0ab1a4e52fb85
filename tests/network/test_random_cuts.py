"""Random cuts by a seed that is printed: `make soak` does this for MINUTES, and with SEED=… for one round by it."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.network.checks import contradictions, false_losses, log_offsets
from tests.network.cluster import Cluster
from tests.network.scenarios import play, random_cuts
from tests.network.workload import workload

pytestmark = pytest.mark.soak

ROUND = 180.0
"""Seconds of cuts between two times that the network is whole and all is checked."""
ENDED_TIMEOUT = 120.0


def test_nothing_is_lost(cluster: Cluster) -> None:
    asked = os.environ.get("SEED")
    until = time.monotonic() + 60 * float(os.environ.get("MINUTES") or 10)
    while True:
        seed = int(asked) if asked else random.getrandbits(32)
        again = f"SEED={seed} .venv/bin/python -m pytest -m soak {os.path.relpath(__file__)}"
        print(f"network cuts by seed {seed}; again: {again}", flush=True)
        offsets = log_offsets(cluster)
        with workload(cluster, f"seed-{seed}-{time.monotonic_ns()}") as running:
            running.wait_told(1)
            play(cluster, random_cuts(cluster, seed), min(ROUND, max(30.0, until - time.monotonic())))
            took = running.finish(ENDED_TIMEOUT)
            print(f"seed {seed}: {len(running.lines('told'))} processes, the last ended {took:.1f} s after", flush=True)
        assert [*contradictions(cluster, running), *false_losses(cluster, offsets)] == [], f"again: {again}"
        if asked or time.monotonic() > until:
            return
        cluster.wait_healthy()
