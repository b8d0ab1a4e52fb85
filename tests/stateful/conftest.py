from __future__ import annotations

from collections.abc import Iterator

import pytest

from recovery.settings import Settings
from tests.emptied import lasting as lasting
from tests.stateful.cluster import Cluster, held_still


@pytest.fixture
def cluster(lasting: Settings) -> Iterator[Cluster]:
    """A cluster in which nothing happens by itself, on an empty database and an empty broker."""
    with held_still() as reported:
        yield Cluster(lasting)
    assert not reported, f"went wrong and was passed over: {reported}"
