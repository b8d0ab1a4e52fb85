"""Carries counts between programs, from programs that nobody scrapes to one that is scraped.

A Spark task sends its counts to its driver with its result. A command leaves its counts in MongoDB when it ends
(`leave`). A worker takes them (`CountsTaker`), and from then on they are counts of this worker. Counters are carried as
a whole, histograms by bucket. No decision depends on a count, so a count that is lost on the way does no further harm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import Metric

from recovery.errors import StoreError
from recovery.limits import ERROR_LENGTH
from recovery.log_lines import Seldom
from recovery.metrics import registry
from recovery.metrics.registry import Counter, Histogram
from recovery.records import Sample
from recovery.wording import printable

if TYPE_CHECKING:  # Spark's executors count without MongoDB's driver
    from recovery.store import Store

OneOf = TypeVar("OneOf", Counter, Histogram)
log = logging.getLogger(__name__)

TAKE_EVERY = 5.0
"""Seconds between two looks for left counts: short enough that a dashboard shows them after the next scrape."""
PAGE = 100
"""Maximum number of programs whose counts are taken at once."""
LOG_EVERY = 300.0
"""Minimum seconds between two log lines about counts that could not be taken."""

Counted = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]
"""Growth by sample and its labels. A bucket's sample counts that bucket alone, not the lower ones."""

_ALL = {metric._name: metric for metric in vars(registry).values() if isinstance(metric, Counter | Histogram)}
TOTAL, BUCKET, SUM, BOUND = "_total", "_bucket", "_sum", "le"


def counted() -> Counted:
    """Return all counts of this process."""
    return {
        key: value
        for instrument in _ALL.values()
        for metric in instrument.collect()
        for key, value in (_buckets(metric) if isinstance(instrument, Histogram) else _totals(metric)).items()
    }


def grown(before: Counted) -> Counted:
    """Return how much each count of this process has grown since `before`."""
    now = counted()
    return {key: value - before.get(key, 0.0) for key, value in now.items() if value != before.get(key, 0.0)}


def carry(counts: Counted) -> None:
    """Add another process's counts to this one's.

    Raises:
        KeyError: A sample is of no metric of ours.
        ValueError: A sample does not fit its metric.
    """
    for (sample, labels), value in counts.items():
        name, _, part = sample.rpartition("_")
        label_values = dict(labels)
        bound = label_values.pop(BOUND, None) if f"_{part}" == BUCKET else None
        metric = _ALL[name]
        if value < 0:
            raise ValueError(f"its value {value} is negative")
        # The metric itself is checked, because the child for these labels may not exist yet.
        if isinstance(metric, Counter) and f"_{part}" == TOTAL:
            _of_labels(metric, label_values).inc(value)
        # `observe` can't be used: only counts per bucket are known, not the observed values.
        elif isinstance(metric, Histogram) and bound is not None:
            bucket = metric._upper_bounds.index(float(bound))
            _of_labels(metric, label_values)._buckets[bucket].inc(value)
        elif isinstance(metric, Histogram) and f"_{part}" == SUM:
            _of_labels(metric, label_values)._sum.inc(value)
        else:
            raise ValueError("the metric has no such sample")


def _of_labels(metric: OneOf, label_values: Mapping[str, str]) -> OneOf:
    if set(label_values) != set(metric._labelnames):
        raise ValueError(f"its labels are {', '.join(metric._labelnames) or 'none'}")
    return metric.labels(**label_values) if label_values else metric


def as_samples(counts: Counted) -> list[Sample]:
    """Return these counts in the form that is stored in MongoDB or handed to a driver."""
    return [Sample(name=name, labels=dict(labels), value=value) for (name, labels), value in counts.items()]


def carry_samples(samples: Iterable[Sample]) -> None:
    """Add these counts to this process's. A sample of an unknown metric, as from a newer version, is logged and
    skipped."""
    for sample in samples:
        try:
            carry({(sample.name, _labels(sample.labels)): sample.value})
        except (KeyError, ValueError) as error:
            log.warning("%s%s: not counted (%r)", sample.name[:100], str(sample.labels)[:200], error)


def _totals(metric: Metric) -> Counted:
    return {(s.name, _labels(s.labels)): s.value for s in metric.samples if s.name.endswith(TOTAL)}


def _buckets(metric: Metric) -> Counted:
    counts: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    lower = 0.0
    for sample in metric.samples:
        if sample.name.endswith(BUCKET):  # in order of bounds within a child, and cumulative
            lower = 0.0 if float(sample.labels[BOUND]) == _first(metric) else lower
            counts[sample.name, _labels(sample.labels)] = sample.value - lower
            lower = sample.value
        elif sample.name.endswith(SUM):
            counts[sample.name, _labels(sample.labels)] = sample.value
    return counts


def _first(metric: Metric) -> float:
    histogram = _ALL[metric.name]
    assert isinstance(histogram, Histogram)
    return histogram._upper_bounds[0]


def _labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def leave(store: Store, before: Counted, seconds: float) -> None:
    """Leave in MongoDB, for a worker, how much this process's counts have grown since `before`.

    Does not raise. If MongoDB does not accept them within this many seconds, the counts are lost.
    """
    from recovery.store.views.overview import time_limit

    if samples := as_samples(grown(before)):
        with suppress(StoreError), time_limit(seconds):
            store.left_counts.leave(samples)


class CountsTaker:
    """Takes the counts that other programs left, at intervals. For one thread."""

    def __init__(self, store: Store) -> None:
        self._store, self._said = store, Seldom(log, LOG_EVERY)
        self._look_at = float("-inf")

    def take_if_due(self) -> int:
        """Take the left counts, if a look is due. Return from how many programs. Does not raise if MongoDB is away."""
        if time.monotonic() < self._look_at:
            return 0
        self._look_at = time.monotonic() + TAKE_EVERY
        try:
            taken = self._store.left_counts.take(PAGE)
        except StoreError as error:
            self._said.warning(
                "could not take the counts that commands left (%s)",
                printable(" ".join(str(error).split())[:ERROR_LENGTH]),
            )
            return 0
        for counts in taken:
            carry_samples(counts.samples)
        return len(taken)
