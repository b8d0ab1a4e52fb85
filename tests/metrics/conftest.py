import pytest

from recovery.metrics import exporter
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `shutdown` waits for the next look."""
    monkeypatch.setattr(exporter, "LOOK_EVERY", 0.1)
