"""The services of docker-compose.yml, and a cluster of them by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.by_hand import ByHand
from tests.deploy.composed import make_env, services


@pytest.fixture
def full_env(tmp_path: Path) -> dict[str, str]:
    """The variables that `make env` makes."""
    return make_env(tmp_path)


@pytest.fixture
def small_env(tmp_path: Path) -> dict[str, str]:
    """Those of `make env SIZE=small`."""
    return make_env(tmp_path, "small")


@pytest.fixture
def full(full_env: dict[str, str], tmp_path: Path) -> Iterator[ByHand]:
    """The whole cluster; nothing of it runs yet."""
    cluster = ByHand(services(full_env), tmp_path / "by hand")
    yield cluster
    cluster.down()


@pytest.fixture
def small(small_env: dict[str, str], tmp_path: Path) -> Iterator[ByHand]:
    """The small cluster; nothing of it runs yet."""
    cluster = ByHand(services(small_env), tmp_path / "by hand")
    yield cluster
    cluster.down()
