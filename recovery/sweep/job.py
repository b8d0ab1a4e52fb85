"""The Spark job: a task for each range, and what came of it back to the driver. No shuffle.

A task leases one range of an operation and works at it, as a recovery worker does. Which range that is, is for the
leases to say and not for Spark. So a task that is tried again, beside one that still runs on an executor that Spark has
abandoned, takes another range or none, and nothing is counted twice.

A job is an RDD if there is a Spark context; Spark Connect has none, and there it is a data frame of as many rows.
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
    """What the driver sends to all executors."""

    settings: Settings
    operation: int
    name: str
    """In whose name ranges are leased: the driver takes back what executors that are gone had."""
    seconds: float = math.inf
    """After which a range is given back, as far as it is."""


@dataclass(frozen=True)
class Worked:
    """What came of a task."""

    counted: Counted
    """In this process, which nobody scrapes."""
    error: str | None = None
    """Why it was cut off. Told and not raised: what it and the other tasks of the job counted would be lost."""

    def to_text(self) -> str:
        """Return this as JSON, for a server of Spark's in between that must not be able to run anything here."""
        counted = [[sample, dict(labels), value] for (sample, labels), value in self.counted.items()]
        return json.dumps({"counted": counted, "error": self.error})

    @classmethod
    def from_text(cls, text: str) -> Worked:
        """Read what `to_text` wrote. Raises ValueError for anything else."""
        match json.loads(text):
            case {"counted": list(samples), "error": str() | None as error}:
                return cls(dict(map(_sample, samples)), error)
        raise ValueError("it is not what a task of ours returns")


def _sample(sample: object) -> tuple[tuple[str, tuple[tuple[str, str], ...]], float]:
    match sample:
        case [str(name), dict(labels), int() | float() as value] if is_finite(value):
            return (name, tuple(sorted((str(key), str(label)) for key, label in labels.items()))), float(value)
    raise ValueError("a sample is a name, labels and a number")


def work_at_a_range(work: Work) -> Worked:
    """Lease a range, and work at it till it is done, or nobody is to work at it. Nothing happens where none is free.
    Does not raise."""
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
    # PySpark collects after each task, and would look at all that was imported each time: a sixth of a task's CPU.
    gc.freeze()
    return worker


@lru_cache(maxsize=4)
def connected(settings: Settings) -> Resources:
    """Return resources of these settings, once MongoDB answers. Raises StoreError if it does not for a while."""
    resources = Resources.connect(settings)
    request = EXECUTOR_CONNECTION.request("connection of a Spark executor to MongoDB")
    call(resources.store.now, request, classified=by_driver)
    return resources


def run(cluster: SparkContext | SparkSession, tasks: int, work: Work) -> list[Worked]:
    """Have executors work at so many ranges; what came of each task. Raises SweepFailed if Spark gives up."""
    try:
        return _by_rdd(cluster, tasks, work) if isinstance(cluster, SparkContext) else _by_rows(cluster, tasks, work)
    except (PySparkException, Py4JError, OSError) as error:
        raise SweepFailed(cause(str(error))) from None


def _by_rdd(context: SparkContext, tasks: int, work: Work) -> list[Worked]:
    sent = context.broadcast(work)  # which no page of Spark's shows
    try:
        found: list[Worked] = context.parallelize(range(tasks), tasks).map(_Task(sent)).collect()
    finally:
        with suppress(Py4JError, OSError):  # its JVM is gone, which was told already
            sent.destroy()
    return found


def _by_rows(session: SparkSession, tasks: int, work: Work) -> list[Worked]:
    frame = session.range(0, tasks, 1, tasks).mapInArrow(_Rows(work), "worked string")
    # A server is in between, which may be somebody else's: its answer is data and never unpickled.
    try:
        return [Worked.from_text(row.worked) for row in frame.collect()]
    except (ValueError, TypeError, RecursionError) as error:
        raise SweepFailed(f"Spark Connect gave an answer that is not of our executors: {error}") from None


class _Task:
    """What a task runs. A class, so that an executor imports it instead of unpickling its code."""

    def __init__(self, sent: Any) -> None:
        self._sent = sent

    def __call__(self, _: int) -> Worked:
        return work_at_a_range(self._sent.value)


class _Rows:
    """The same for batches of rows."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        from pyarrow import RecordBatch

        for batch in batches:
            worked = [work_at_a_range(self._work).to_text() for _ in range(batch.num_rows)]
            yield RecordBatch.from_pydict({"worked": worked})


def cause(trace: str) -> str:
    """The error itself: the last line of Python's part of a trace, which Java's part follows."""
    lines = [line.strip() for line in trace.partition("\n\tat ")[0].splitlines()]
    told = [line for line in lines if line and not line.startswith("SQLSTATE")]
    return told[-1][:500] if told else "no reason given"
