"""Whoever works is killed, again and again, at steps that a seed draws: `-k "kills[7]"` runs the seventh again."""

from __future__ import annotations

import pytest

from tests.stateful.cluster import Cluster
from tests.stateful.kills import kill_again_and_again


@pytest.mark.parametrize("seed", range(6))
def test_kills(cluster: Cluster, seed: int) -> None:
    assert kill_again_and_again(cluster, seed), "at least one was killed"
