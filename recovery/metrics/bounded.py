"""Counters and histograms that can't have label sets without end: process types and actors come from records, which
anybody may have written, and each label set stays for as long as its process lives.
"""

from __future__ import annotations

from typing import Any

import prometheus_client

MAX_SERIES = 2_000
"""Label sets of one metric in one process. What comes after is counted under OTHER."""
MAX_LABEL = 200
"""Characters of a label. What is longer is cut."""
OTHER = "(other)"
"""The value of each label there. No actor or process type can have this name."""


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
    given = [named[name] for name in metric._labelnames] if named else values
    key = tuple(str(value)[:MAX_LABEL] for value in given)
    if key in metric._metrics or len(metric._metrics) < MAX_SERIES:
        return key
    return (OTHER,) * len(key)
