"""Counters and histograms that can't have label sets without end: process types and actors come from records, which
anybody may have written, and each label set stays for as long as its process lives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import prometheus_client

MAX_SERIES = 2_000
"""Label sets of one metric in one process. What comes after is counted under OTHER."""
MAX_STRANGERS = 200
"""Values of the labels NAMES in one process that are not `ours`. What comes after is counted under OTHER."""
STRANGERS_SERIES = 1_000
"""Label sets of one metric that may hold such a value: the rest is left to ours."""
MAX_LABEL = 200
"""Characters of a label. What is longer is cut."""
OTHER = "(other)"
"""The value of each label there. No actor or process type can have this name."""
NAMES = ("actor", "type")
"""Labels whose values come from records."""

_ours: set[str] = set()
_strangers: set[str] = set()


def ours(names: Iterable[str]) -> None:
    """Have these actors and process types, which the process knows by its code, always told by their names."""
    _ours.update(names)
    _strangers.difference_update(_ours)


class Counter(prometheus_client.Counter):
    """A counter."""

    def labels(self, *values: Any, **named: Any) -> Counter:
        """The child for these labels, or for what is counted together."""
        return super().labels(*_within(self, values, named))


class Histogram(prometheus_client.Histogram):
    """A histogram."""

    def labels(self, *values: Any, **named: Any) -> Histogram:
        """The child for these labels, or for what is counted together."""
        return super().labels(*_within(self, values, named))


def _within(metric: Counter | Histogram, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, ...]:
    """The labels to count under instead of these."""
    names = metric._labelnames
    given = [named[name] for name in names] if named else values
    key = tuple(str(value)[:MAX_LABEL] for value in given)
    if key in metric._metrics:
        return key
    key = tuple(_known(value) if name in NAMES else value for name, value in zip(names, key, strict=False))
    stranger = any(name in NAMES and value not in _ours for name, value in zip(names, key, strict=False))
    if key in metric._metrics or len(metric._metrics) < (STRANGERS_SERIES if stranger else MAX_SERIES):
        return key
    return (OTHER,) * len(key)


def _known(name: str) -> str:
    """A name that is ours, or one of the first others; OTHER for the rest."""
    if name in _ours or name in _strangers:
        return name
    if len(_strangers) >= MAX_STRANGERS:
        return OTHER
    _strangers.add(name)
    return name
