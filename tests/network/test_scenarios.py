"""Whatever is cut from what: nothing is lost, accepted twice or changed, no worker is falsely taken for lost, and all
has ended two minutes after the network is whole again."""

from __future__ import annotations

import json

import pytest

from recovery.health.model import Cause
from tests.network import scenarios
from tests.network.checks import contradictions, false_losses, log_offsets
from tests.network.cluster import WORKERS, Cluster
from tests.network.workload import workload

pytestmark = pytest.mark.soak

TEN_MINUTES = 600
SECONDS = 40
ENDED_TIMEOUT = 120.0


@pytest.mark.parametrize("name", scenarios.ALL)
def test_nothing_is_lost(cluster: Cluster, name: str) -> None:
    offsets = log_offsets(cluster)
    with workload(cluster, name) as running:
        running.wait_told(2)
        scenarios.play(cluster, scenarios.ALL[name](cluster), SECONDS)
        took = running.finish(ENDED_TIMEOUT)
        print(f"{name}: all had ended {took:.1f} s after the network was whole again")
    assert [*contradictions(cluster, running), *false_losses(cluster, offsets)] == []


@pytest.mark.parametrize("seconds", [TEN_MINUTES, -TEN_MINUTES])
@pytest.mark.parametrize("cut_off", WORKERS)
def test_nothing_is_lost_with_a_wrong_clock(cluster: Cluster, seconds: int, cut_off: str) -> None:
    """The clock of one of two workers is wrong, and one of them is cut from MongoDB. `doctor` says whose it is."""
    cluster.shift_clock(scenarios.WORKER, seconds)
    try:
        checks = json.loads(cluster.command("doctor", "--json").text.splitlines()[0])["checks"]
        (clocks,) = (one for one in checks if one["name"] == "clocks")
        assert clocks["cause"] == Cause.CLOCKS_APART and scenarios.WORKER in clocks["found"], clocks
        offsets = log_offsets(cluster)
        with workload(cluster, f"clock-{seconds}-{cut_off}") as running:
            running.wait_told(2)
            scenarios.play(cluster, scenarios.from_mongodb(cluster, cut_off), SECONDS)
            running.finish(ENDED_TIMEOUT)
        assert [*contradictions(cluster, running), *false_losses(cluster, offsets)] == []
    finally:
        cluster.hosts.heal()
        cluster.shift_clock(scenarios.WORKER, 0)
