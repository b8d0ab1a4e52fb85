"""What is tried in full in a long run alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def by_turns(*values: Sequence[Any]) -> list[Any]:
    """Parameters for all combinations of these values. Each of the others is tried with one of the last, by turns, and
    with all of them in a long run."""
    made = []
    for places in product(*(range(len(one)) for one in values)):
        marks = [pytest.mark.soak] if sum(places) % len(values[-1]) else []
        made.append(pytest.param(*(one[place] for one, place in zip(values, places, strict=True)), marks=marks))
    return made
