"""A database whose collections are made once; tests that change the collections themselves take `settings`."""

from __future__ import annotations

import pytest

from recovery import Settings
from tests.cli.every import make_world
from tests.emptied import Kept
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting


@pytest.fixture(scope="session")
def kept(lasting: Settings) -> Kept:
    """The world in which every command is tried."""
    return make_world(lasting)


@pytest.fixture
def env(lasting: Settings, kept: Kept) -> dict[str, str]:
    kept.restore()
    # What was polled when the world was made counts as polled when the last of many tests looks.
    lasts = {"RECOVERY_HEARTBEAT_TIMEOUT": "600"}
    return {**lasting.environment(), **lasts, "RECOVERY_APP": "tests.cli.shop:app", "TERM": "xterm"}
