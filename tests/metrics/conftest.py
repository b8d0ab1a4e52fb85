import pytest

from recovery.metrics import server
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `shutdown` waits for the next look."""
    monkeypatch.setattr(server, "LOOK_EVERY", 0.1)
