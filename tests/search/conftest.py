from __future__ import annotations

import pytest

from recovery import Recovery
from recovery.settings import Settings
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.world import World


@pytest.fixture
def world(emptied: Settings) -> World:
    """An empty database and broker, and an application without actors."""
    return World(emptied)


@pytest.fixture
def app(world: World) -> Recovery:
    """The world's application."""
    return world.app
