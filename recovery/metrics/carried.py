"""What was counted in a process that nobody scrapes, carried to one that is."""

from __future__ import annotations

from collections import Counter as Sums
from collections.abc import Mapping

from prometheus_client import Counter

from recovery.metrics import registry

Counted = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]
"""{(metric, its labels): by how much it grew}"""

_COUNTERS = {next(iter(one.describe())).name: one for one in vars(registry).values() if isinstance(one, Counter)}


def counted() -> Sums[tuple[str, tuple[tuple[str, str], ...]]]:
    """All counters as they stand in this process. The difference of two is what was counted meanwhile."""
    return Sums(
        {
            (name, tuple(sorted(sample.labels.items()))): sample.value
            for name, counter in _COUNTERS.items()
            for metric in counter.collect()
            for sample in metric.samples
            if sample.name.endswith("_total")
        }
    )


def carry(counts: Counted) -> None:
    """Count here what was counted elsewhere."""
    for (name, labels), value in counts.items():
        counter = _COUNTERS[name]
        (counter.labels(**dict(labels)) if labels else counter).inc(value)
