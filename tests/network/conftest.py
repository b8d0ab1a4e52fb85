"""The cluster of the run, made once: a minute's work. Each test begins with a network that is whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.network.cluster import Cluster
from tests.network.hosts import why_not


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster, for all tests of the run."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    cluster = Cluster(tmp_path_factory.mktemp("network"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(whole_run: Cluster) -> Iterator[Cluster]:
    """The cluster with a whole network, also after a test that failed."""
    whole_run.wait_healthy()
    yield whole_run
    whole_run.hosts.heal()
