"""`recovery ping`: whether a worker's main loop answers, without a trace."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.cli.command import recovery
from tests.cluster.conftest import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


def test_ping(cluster: Cluster, tmp_path: Path) -> None:
    worker = cluster.worker(pool="threads")
    files = tmp_path / "temporary"
    files.mkdir()
    env = cluster.settings.environment() | {"TMPDIR": str(files)}

    def ping(*options: str) -> tuple[int, str]:
        done = recovery("ping", "--name", worker.name, *options, env=env)
        return done.returncode, done.stdout + done.stderr

    wait_until(lambda: ping()[0] == 0, 30, "an answer")
    with redis.Redis.from_url(cluster.settings.broker_url) as broker:
        before = broker.keys()
        code, said = ping()
        assert code == 0 and said.endswith(" answers\n")
        assert broker.keys() == before
    assert not list(files.iterdir())
    worker.freeze()
    code, said = ping("--timeout", "0.5")
    worker.thaw()
    assert code == 1 and said.endswith(" does not answer within 0.5s\n")
