"""Sums metrics over many processes, from the files that prometheus-client keeps for each process.

The files outlive their processes, so the counts of a killed worker remain. Files may be written or removed while they
are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.multiprocess import MultiProcessCollector

TRIES = 3
"""How often the files are listed if some are removed meanwhile."""


def collect(*folders: Path | str) -> list[Metric]:
    """Return the sums over all processes that keep, or kept, files in these folders."""
    for _ in range(TRIES - 1):
        with suppress(FileNotFoundError):  # a file was removed after it was listed
            return _collect(folders)
    return _collect(folders)


def _collect(folders: Iterable[Path | str]) -> list[Metric]:
    # A file is empty while it is being created, and stays empty if its process was killed then.
    files = [str(file) for folder in folders for file in Path(folder).glob("*.db") if file.stat().st_size]
    return list(MultiProcessCollector.merge(files))  # type: ignore[no-untyped-call]


def total(metrics: Iterable[Metric], name: str, **labels: str) -> float:
    """Return the sum of a counter over all labels that are not given."""
    return sum(
        sample.value
        for metric in metrics
        for sample in metric.samples
        if sample.name == f"{name}_total" and labels.items() <= sample.labels.items()
    )


def totals(metrics: Iterable[Metric], name: str, label: str) -> dict[str, int]:
    """Return the sums of a counter by the values of one label."""
    sums: dict[str, int] = {}
    for metric in metrics:
        for sample in metric.samples:
            if sample.name == f"{name}_total":
                sums[sample.labels[label]] = sums.get(sample.labels[label], 0) + round(sample.value)
    return sums


def buckets(metrics: Iterable[Metric], name: str) -> dict[float, float]:
    """Return a histogram summed over all labels: {upper bound: number of observations up to it}, in order of bounds."""
    counts: dict[float, float] = {}
    for metric in metrics:
        for sample in metric.samples:
            if sample.name == f"{name}_bucket":
                bound = float(sample.labels["le"])
                counts[bound] = counts.get(bound, 0.0) + sample.value
    return dict(sorted(counts.items()))


def quantile(q: float, buckets: dict[float, float]) -> float | None:
    """Return the `q`-quantile of a histogram as Prometheus computes it: linear within a bucket; None if it is empty.

    Observations above the last finite bound count as that bound.
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
