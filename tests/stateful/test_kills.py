"""Whoever works is killed, again and again, at steps that a seed draws: `-k "kills[7]"` runs the seventh again."""

from __future__ import annotations

import pytest

from tests.stateful.cluster import Cluster
from tests.stateful.kills import kill_again_and_again

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (3, 4, 5))])
def test_kills(cluster: Cluster, seed: int) -> None:
    assert kill_again_and_again(cluster, seed), "at least one was killed"
