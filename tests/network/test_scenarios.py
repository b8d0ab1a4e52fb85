"""Whatever is cut from what: nothing is lost, accepted twice or changed, no worker is falsely taken for lost, and all
has ended two minutes after the network is whole again."""

from __future__ import annotations

import pytest

from tests.network import scenarios
from tests.network.checks import contradictions, false_losses, log_offsets
from tests.network.cluster import Cluster
from tests.network.workload import workload

pytestmark = pytest.mark.soak

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
