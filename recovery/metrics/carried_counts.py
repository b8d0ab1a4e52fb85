"""Counts that are carried between programs: from one that nobody scrapes to one that is.

A Spark task hands its counts to its driver with its result. A command leaves them in MongoDB when it ends (`leave`),
and a worker takes them up (`CountsTaker`): from then on they are this worker's. Counters are carried whole, and
histograms bucket by bucket. Nothing is decided by a count, so one that is lost on the way is a count too few.
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
"""Seconds between two looks for counts that were left: who watches a dashboard sees them at the next scrape."""
PAGE = 100
"""Programs whose counts are taken at once."""
LOG_EVERY = 300.0

Counted = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]
"""{(sample, its labels): by how much it grew}. A sample of a bucket counts that bucket alone."""

_ALL = {one._name: one for one in vars(registry).values() if isinstance(one, Counter | Histogram)}
TOTAL, BUCKET, SUM, BOUND = "_total", "_bucket", "_sum", "le"


def counted() -> Counted:
    """Return all counts of this process."""
    return {
        key: value
        for one in _ALL.values()
        for metric in one.collect()
        for key, value in (_buckets(metric) if isinstance(one, Histogram) else _totals(metric)).items()
    }


def grown(before: Counted) -> Counted:
    """Return what this process counted since then."""
    now = counted()
    return {key: value - before.get(key, 0.0) for key, value in now.items() if value != before.get(key, 0.0)}


def carry(counts: Counted) -> None:
    """Add another process's counts to this one's. Raises KeyError or ValueError for a sample that is not of our
    metrics."""
    for (sample, labels), value in counts.items():
        name, _, part = sample.rpartition("_")
        given = dict(labels)
        bound = given.pop(BOUND, None) if f"_{part}" == BUCKET else None
        metric = _ALL[name]
        if value < 0:
            raise ValueError(f"{value} is no growth")
        # By the parent, before there is a label set for it.
        if isinstance(metric, Counter) and f"_{part}" == TOTAL:
            _of_labels(metric, given).inc(value)
        # What was observed is not known any more, but how often and up to which bounds: so not by `observe`.
        elif isinstance(metric, Histogram) and bound is not None:
            place = metric._upper_bounds.index(float(bound))
            _of_labels(metric, given)._buckets[place].inc(value)
        elif isinstance(metric, Histogram) and f"_{part}" == SUM:
            _of_labels(metric, given)._sum.inc(value)
        else:
            raise ValueError("it is no part of that metric")


def _of_labels(metric: OneOf, given: Mapping[str, str]) -> OneOf:
    if set(given) != set(metric._labelnames):
        raise ValueError(f"its labels are {', '.join(metric._labelnames) or 'none'}")
    return metric.labels(**given) if given else metric


def as_samples(counts: Counted) -> list[Sample]:
    """Return these counts in the form that is stored in MongoDB, or handed to a driver."""
    return [Sample(name=name, labels=dict(labels), value=value) for (name, labels), value in counts.items()]


def carry_samples(samples: Iterable[Sample]) -> None:
    """Add these counts to this process's. A sample that is not of our metrics, as from a newer version, is logged and
    left out."""
    for sample in samples:
        try:
            carry({(sample.name, _labels(sample.labels)): sample.value})
        except (KeyError, ValueError) as error:
            log.warning("%s%s: not counted (%r)", sample.name[:100], str(sample.labels)[:200], error)


def _totals(metric: Metric) -> Counted:
    return {(s.name, _labels(s.labels)): s.value for s in metric.samples if s.name.endswith(TOTAL)}


def _buckets(metric: Metric) -> Counted:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    below = 0.0
    for sample in metric.samples:
        if sample.name.endswith(BUCKET):  # those of a child in order of their bounds, each with all before it
            below = 0.0 if float(sample.labels[BOUND]) == _first(metric) else below
            found[sample.name, _labels(sample.labels)] = sample.value - below
            below = sample.value
        elif sample.name.endswith(SUM):
            found[sample.name, _labels(sample.labels)] = sample.value
    return found


def _first(metric: Metric) -> float:
    one = _ALL[metric.name]
    assert isinstance(one, Histogram)
    return one._upper_bounds[0]


def _labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def leave(store: Store, before: Counted, seconds: float) -> None:
    """Leave in MongoDB what was counted since then, for a worker. Does not raise if MongoDB does not take it within so
    many seconds: then it is a count too few."""
    from recovery.store.views.overview import time_limit

    if samples := as_samples(grown(before)):
        with suppress(StoreError), time_limit(seconds):
            store.left_counts.leave(samples)


class CountsTaker:
    """Takes up the counts that other programs left, now and then. For one thread."""

    def __init__(self, store: Store) -> None:
        self._store, self._said = store, Seldom(log, LOG_EVERY)
        self._look_at = float("-inf")

    def take_if_due(self) -> int:
        """Take up what was left since, if it is time, and return of how many programs. Does not raise if MongoDB is
        away."""
        if time.monotonic() < self._look_at:
            return 0
        self._look_at = time.monotonic() + TAKE_EVERY
        try:
            taken = self._store.left_counts.take(PAGE)
        except StoreError as error:
            self._said.warning(
                "what commands counted is not taken up (%s)", printable(" ".join(str(error).split())[:ERROR_LENGTH])
            )
            return 0
        for left in taken:
            carry_samples(left.samples)
        return len(taken)
