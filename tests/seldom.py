"""What is tried in full in a long run alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def by_turns(*values: Sequence[Any], ids: Sequence[Sequence[str]] | None = None) -> list[Any]:
    """Parameters for all combinations of these values. Each of the first is tried with one of the last by turns, and
    with all of them in a long run."""
    names = ids or [[str(value) for value in one] for one in values]
    every, made = len(values[-1]), []
    for places in product(*(range(len(one)) for one in values)):
        made.append(
            pytest.param(
                *(one[place] for one, place in zip(values, places, strict=True)),
                id="-".join(name[place] for name, place in zip(names, places, strict=True)),
                marks=[pytest.mark.soak] if sum(places) % every else [],
            )
        )
    return made
