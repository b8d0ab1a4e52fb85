from __future__ import annotations

import pytest

from recovery.settings import Settings
from recovery.store import Store
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting


@pytest.fixture
def store(emptied: Settings) -> Store:
    """The store of an empty database with its collections, indexes and validators."""
    return Store(emptied)
