"""Every service of docker-compose.yml runs by its own command line: see by_hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.deploy.by_hand import ByHand

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.spark]

TASKS = [["first", [], 0.1], ["second", ["first"], 0.1]]


def recovery(cluster: ByHand, *arguments: str) -> Any:
    """What `docker compose run --rm recovery ...` prints with --json."""
    run = cluster.run("recovery", ["recovery", *arguments, "--json"])
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)


def start_workflow(cluster: ByHand) -> Any:
    """A process of the demo's, to its end."""
    return recovery(cluster, "start", "workflow", json.dumps(TASKS), "1", "--wait", "60")


def test_the_small_cluster(small: ByHand) -> None:
    small.up("worker", "beat")
    print(start_workflow(small))
