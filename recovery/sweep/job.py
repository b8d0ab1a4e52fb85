"""The Spark job: a task for each range, and what came of it back to the driver. No shuffle.

Through an RDD where there is a Spark context; Spark Connect has none, and there it is a data frame of as many rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from recovery.errors import SweepFailed
from recovery.sweep.executor import Work, Worked, work_at_a_range


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
