from __future__ import annotations

import os
import random

import pytest

from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting


@pytest.fixture
def seed() -> int:
    """A new one, or FUZZ_SEED; printed, so that pytest shows it with a failure."""
    chosen = int(os.environ.get("FUZZ_SEED") or random.randrange(1 << 32))
    print(f"FUZZ_SEED={chosen}")
    return chosen


def rounds(ci: int, soak: int) -> pytest.MarkDecorator:
    """Give a test the argument `rounds`: so many in every run of the tests, and so many in `make soak`."""
    values = [pytest.param(ci, id="ci"), pytest.param(soak, id="soak", marks=pytest.mark.soak)]
    return pytest.mark.parametrize("rounds", values)
