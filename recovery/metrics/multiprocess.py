"""Metrics of many processes, from the files that prometheus-client keeps for each of them.

The files outlive their processes, so what a killed worker counted stays counted. They may be read while they
are written, or removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.multiprocess import MultiProcessCollector

TRIES = 3
"""How often the files are looked for, if some are removed meanwhile."""


def collect(*folders: Path | str) -> list[Metric]:
    """The sums over all processes that keep, or kept, files in these folders."""
    for _ in range(TRIES - 1):
        with suppress(FileNotFoundError):  # one was removed after it was found
            return _collect(folders)
    return _collect(folders)


def _collect(folders: Iterable[Path | str]) -> list[Metric]:
    # A file is empty while it is being made, and for good if its process was killed just then.
    files = [str(file) for folder in folders for file in Path(folder).glob("*.db") if file.stat().st_size]
    return list(MultiProcessCollector.merge(files))  # type: ignore[no-untyped-call]


def total(metrics: Iterable[Metric], name: str, **labels: str) -> float:
    """The sum of a counter over all its labels that are not given."""
    return sum(
        sample.value
        for metric in metrics
        for sample in metric.samples
        if sample.name == f"{name}_total" and labels.items() <= sample.labels.items()
    )


def totals(metrics: Iterable[Metric], name: str, label: str) -> dict[str, int]:
    """The sums of a counter by one of its labels: {value of the label: sum}."""
    found: dict[str, int] = {}
    for metric in metrics:
        for sample in metric.samples:
            if sample.name == f"{name}_total":
                found[sample.labels[label]] = found.get(sample.labels[label], 0) + round(sample.value)
    return found


def buckets(metrics: Iterable[Metric], name: str) -> dict[float, float]:
    """A histogram over all its labels: {upper bound: observations up to it}, bounds in order."""
    found: dict[float, float] = {}
    for metric in metrics:
        for sample in metric.samples:
            if sample.name == f"{name}_bucket":
                bound = float(sample.labels["le"])
                found[bound] = found.get(bound, 0.0) + sample.value
    return dict(sorted(found.items()))


def quantile(q: float, buckets: dict[float, float]) -> float | None:
    """The `q`-quantile of a histogram, as Prometheus works it out: linear within a bucket; None if empty.

    What lies past the last finite bound counts as that bound.
    """
    observed = max(buckets.values(), default=0.0)
    if not observed:
        return None
    rank, lower, below = q * observed, 0.0, 0.0
    for bound, count in buckets.items():
        if count >= rank and count > below:
            return lower if bound == float("inf") else lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound if bound != float("inf") else lower, count
    return lower
