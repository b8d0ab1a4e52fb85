"""What all tests here share: authorities, and servers that are guarded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guarded.authority import Authority
from tests.guarded.servers import Servers


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="session")
def authority(folder: Path) -> Authority:
    """Whom servers and clients trust."""
    return Authority(folder / "authority")


@pytest.fixture(scope="session")
def stranger(folder: Path) -> Authority:
    """Whom nobody trusts."""
    return Authority(folder / "stranger", "stranger")


@pytest.fixture(scope="session")
def servers(folder: Path, authority: Authority) -> Iterator[Servers]:
    """MongoDB and Redis, with users of all kinds."""
    made = Servers(folder, authority)
    yield made
    made.stop()
