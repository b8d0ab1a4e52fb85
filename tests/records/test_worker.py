"""Whether a worker has beaten since its deadline was read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from recovery.records import is_same_deadline

NOON, LATER = datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 1, 13, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (NOON, NOON, True),
        (NOON, LATER, False),
        (NOON, None, False),
        (None, NOON, False),
        (None, None, True),
        (None, "tomorrow", True),
    ],
)
def test_a_worker_has_the_same_deadline_until_it_beats(one: Any, other: Any, is_same: bool) -> None:
    assert is_same_deadline(one, other) is is_same
