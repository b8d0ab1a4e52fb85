"""The Spark job: one task for each range, whose results are collected on the driver. No shuffle.

A task leases a range of an operation and works on it, as a recovery worker does. The leases decide which range that is,
not Spark. If Spark retries a task while the first attempt still runs on a lost executor, the second attempt takes
another range or none, so nothing is counted twice.

With a Spark context, a job is an RDD. Spark Connect has no context, so there a job is a data frame with one row for
each task.
"""

from __future__ import annotations

import gc
import json
import logging
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from recovery.engine import Outbox, Resources
from recovery.engine.isolation import in_a_line
from recovery.errors import SweepFailed
from recovery.metrics.carried_counts import Counted, counted, grown
from recovery.operations import OperationWorker
from recovery.records.given import is_finite
from recovery.retry.in_place import by_driver, call
from recovery.retry.own_work import EXECUTOR_CONNECTION
from recovery.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """Instructions that the driver sends to all executors."""

    settings: Settings
    operation: int
    name: str
    """The name in leases of ranges. With it the driver takes back the leases of lost executors."""
    seconds: float = math.inf
    """Seconds after which a task gives its range back, done or not."""


@dataclass(frozen=True)
class Worked:
    """The result of a task."""

    counted: Counted
    """Metric samples counted in this task. They are returned because executors are not scraped."""
    error: str | None = None
    """Why the task was interrupted. Returned instead of raised, because an exception would lose the counts of all tasks
    of the job."""

    def to_text(self) -> str:
        """Return the result as JSON. A Spark server in between could run code here if the result were unpickled."""
        counted = [[sample, dict(labels), value] for (sample, labels), value in self.counted.items()]
        return json.dumps({"counted": counted, "error": self.error})

    @classmethod
    def from_text(cls, text: str) -> Worked:
        """Parse what `to_text` wrote. Raises ValueError for any other text."""
        match json.loads(text):
            case {"counted": list(samples), "error": str() | None as error}:
                return cls(dict(map(_sample, samples)), error)
        raise ValueError("it is not the result of a task")


def _sample(sample: object) -> tuple[tuple[str, tuple[tuple[str, str], ...]], float]:
    match sample:
        case [str(name), dict(labels), int() | float() as value] if is_finite(value):
            return (name, tuple(sorted((str(key), str(label)) for key, label in labels.items()))), float(value)
    raise ValueError("a sample is a name, labels and a number")


def work_at_a_range(work: Work) -> Worked:
    """Lease a range and work on it until it is done or its lease or operation ends. Does nothing if no range is free,
    and never raises."""
    before, error = counted(), None
    try:
        _worker(work.settings, work.name).work_once(work.operation, work.seconds)
    except Exception as failed:
        log.warning("operation %d: a range is given back", work.operation, exc_info=True)
        error = in_a_line(failed)
    return Worked(grown(before), error)


@lru_cache(maxsize=4)
def _worker(settings: Settings, name: str) -> OperationWorker:
    resources = connected(settings)
    worker = OperationWorker(resources, Outbox(resources), name)
    # PySpark collects garbage after each task. Without freeze it would scan all imported objects each time, which is
    # expensive.
    gc.freeze()
    return worker


@lru_cache(maxsize=4)
def connected(settings: Settings) -> Resources:
    """Return connected resources for these settings. Raises StoreError if MongoDB does not answer within the retry
    policy."""
    resources = Resources.connect(settings)
    request = EXECUTOR_CONNECTION.request("connection of a Spark executor to MongoDB")
    call(resources.store.now, request, classified=by_driver)
    return resources


def run(cluster: SparkContext | SparkSession, tasks: int, work: Work) -> list[Worked]:
    """Run a job of this many tasks, and return the result of each task. Raises SweepFailed if Spark gives up."""
    try:
        return _by_rdd(cluster, tasks, work) if isinstance(cluster, SparkContext) else _by_rows(cluster, tasks, work)
    except (PySparkException, Py4JError, OSError) as error:
        raise SweepFailed(cause(str(error))) from None


def _by_rdd(context: SparkContext, tasks: int, work: Work) -> list[Worked]:
    broadcast = context.broadcast(work)  # because no page of Spark's shows a broadcast
    try:
        results: list[Worked] = context.parallelize(range(tasks), tasks).map(_Task(broadcast)).collect()
    finally:
        with suppress(Py4JError, OSError):  # its JVM has ended, which was reported before
            broadcast.destroy()
    return results


def _by_rows(session: SparkSession, tasks: int, work: Work) -> list[Worked]:
    frame = session.range(0, tasks, 1, tasks).mapInArrow(_Rows(work), "worked string")
    # The server in between may belong to somebody else, so its answer is parsed as data and never unpickled.
    try:
        return [Worked.from_text(row.worked) for row in frame.collect()]
    except (ValueError, TypeError, RecursionError) as error:
        raise SweepFailed(f"Spark Connect returned an answer that is not from our executors: {error}") from None


class _Task:
    """The function of a task in an RDD. A class, so that an executor imports it instead of unpickling its code."""

    def __init__(self, broadcast: Any) -> None:
        self._broadcast = broadcast

    def __call__(self, _: int) -> Worked:
        return work_at_a_range(self._broadcast.value)


class _Rows:
    """The function of tasks in a data frame, one task for each row."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        from pyarrow import RecordBatch

        for batch in batches:
            worked = [work_at_a_range(self._work).to_text() for _ in range(batch.num_rows)]
            yield RecordBatch.from_pydict({"worked": worked})


def cause(trace: str) -> str:
    """Return the error message of a Python stack trace from Spark: its last line before Java's part."""
    lines = [line.strip() for line in trace.partition("\n\tat ")[0].splitlines()]
    messages = [line for line in lines if line and not line.startswith("SQLSTATE")]
    return messages[-1][:500] if messages else "no reason given"
