"""Two things measured side by side, so that what else the machine does falls on both alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence


def in_turn(works: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """{name: what each run of it gave}, one after the other, the order turned round each time: what goes on beside, or
    what one leaves behind for the next, falls on all of them."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats):
        for name in list(works)[:: -1 if turn % 2 else 1]:
            found[name].append(works[name]())
    return found


def ratios(found: Mapping[str, Sequence[float]], one: str, other: str) -> list[float]:
    """One by the other, pair by pair."""
    return [a / b for a, b in zip(found[one], found[other], strict=True)]
